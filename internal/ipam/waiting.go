package ipam

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/google/btree"

	"github.com/berthlb/berth/internal/cluster"
)

// waitKey is what a Service may wait for. Exactly one of its fields is set.
type waitKey struct {
	address     netip.Addr   // this address
	company     netip.Addr   // others to share this address with
	place       place        // any address of a family of a pool; with a namespace: one more within its quota
	sharingKey  string       // an address that Services of this key hold
	reservedFor cluster.Name // an address that is reserved for this Service
}

// older orders Services by age, then by name: of those that wait the older is served first (rule P18).
func older(a, b *cluster.Service) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Name.Compare(b.Name), cmp.Compare(a.UID, b.UID))
}

// waiting is who waits for what. A Service waits for what makes its wish fail right now, never for what it could have
// at once.
type waiting map[waitKey]*btree.BTreeG[*cluster.Service]

// add makes a Service wait.
func (w waiting) add(service *cluster.Service, keys []waitKey) {
	for _, key := range keys {
		if w[key] == nil {
			w[key] = btree.NewG(degree, func(a, b *cluster.Service) bool { return older(a, b) < 0 })
		}
		w[key].ReplaceOrInsert(service)
	}
}

// remove ends a Service's waiting.
func (w waiting) remove(service *cluster.Service, keys []waitKey) {
	for _, key := range keys {
		if w[key] == nil {
			continue
		}
		w[key].Delete(service)
		if w[key].Len() == 0 {
			delete(w, key)
		}
	}
}

// first is the oldest Service that waits for the key; nil if none does.
func (w waiting) first(key waitKey) *cluster.Service {
	if w[key] == nil {
		return nil
	}
	service, _ := w[key].Min()
	return service
}

// all wakes everybody who waits for the key.
func (w waiting) all(key waitKey, wakes woken) {
	if w[key] == nil {
		return
	}
	w[key].Ascend(func(service *cluster.Service) bool {
		wakes.add(service)
		return true
	})
}

// clone is a copy that can be changed.
func (w waiting) clone() waiting {
	copied := make(waiting, len(w))
	for key, services := range w {
		copied[key] = services.Clone()
	}
	return copied
}

// woken collects the Services that something freed may help.
type woken map[cluster.Name]*cluster.Service

// add takes a Service in; nil is none.
func (w woken) add(service *cluster.Service) {
	if service != nil {
		w[service.Name] = service
	}
}

// names are the Services' names, oldest first.
func (w woken) names() []cluster.Name {
	if len(w) == 0 {
		return nil
	}
	services := make([]*cluster.Service, 0, len(w))
	for _, service := range w {
		services = append(services, service)
	}
	slices.SortFunc(services, older)
	names := make([]cluster.Name, len(services))
	for i, service := range services {
		names[i] = service.Name
	}
	return names
}
