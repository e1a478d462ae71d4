package assign

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
)

// FuzzQuarantine: whatever a pool's status says, what is read of it is an address that a pool can have, of a Service, for
// a day at most.
func FuzzQuarantine(f *testing.F) {
	f.Add("192.0.2.10", "shop/web", int64(1767268800))
	f.Add("::ffff:192.0.2.10", "shop/", int64(1)<<60)
	f.Add("fe80::1%eth0", "/", int64(-1))
	f.Add("", "shop", int64(0))
	f.Fuzz(func(t *testing.T, address, service string, until int64) {
		now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		read := readCoolings([]v1beta1.QuarantinedAddress{{Address: address, Service: service, Until: metav1.Unix(until, 0)}}, now)
		for _, one := range read {
			if !one.Address.IsValid() || one.Address != one.Address.Unmap().WithZone("") {
				t.Errorf("%v is not canonical", one.Address)
			}
			if one.Service.String() != service {
				t.Errorf("%q is read as %v", service, one.Service)
			}
			if one.Until.After(now.Add(24 * time.Hour)) {
				t.Errorf("kept until %v", one.Until)
			}
		}
	})
}
