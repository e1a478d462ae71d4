package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/e2e/lab/audit"
)

// Lines as an API server 1.37 writes them, shortened to the fields that exist in every one.
const log = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/services/web/status?fieldManager=berth","verb":"patch","user":{"username":"system:serviceaccount:berth-system:controller","groups":["system:serviceaccounts"]},"sourceIPs":["172.30.0.21"],"userAgent":"controller/v0","objectRef":{"resource":"services","namespace":"a","name":"web","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.010000Z"}
{"stage":"ResponseComplete","verb":"create","user":{"username":"admin"},"impersonatedUser":{"username":"system:serviceaccount:berth-system:speaker"},"objectRef":{"resource":"speakers","name":"n1","apiGroup":"berth.dev","apiVersion":"v1beta1"},"responseStatus":{"code":403},"requestReceivedTimestamp":"2026-01-02T03:04:06.000000Z"}
{"stage":"ResponseStarted","verb":"patch","user":{"username":"admin"},"objectRef":{"resource":"nodes","name":"n1"},"requestReceivedTimestamp":"2026-01-02T03:04:07.000000Z"}
`

func TestParse(t *testing.T) {
	t.Parallel()
	first := audit.Write{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 1000, time.UTC), User: "system:serviceaccount:berth-system:controller",
		Verb: "patch", Resource: "services/status", Namespace: "a", Name: "web", Code: 200, Agent: "controller/v0",
		From: "172.30.0.21",
	}
	second := audit.Write{
		Time: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC), User: "system:serviceaccount:berth-system:speaker",
		Verb: "create", Resource: "speakers", Name: "n1", Code: 403,
	}
	for name, test := range map[string]struct {
		reason, log string
		want        []audit.Write
		fails       bool
	}{
		"Whole":  {reason: "finished requests are writes, of the impersonated user", log: log, want: []audit.Write{first, second}},
		"CutOff": {reason: "a line that is being written is left out", log: log + `{"stage":"Resp`, want: []audit.Write{first, second}},
		"Broken": {reason: "a line that is no JSON is an error", log: "x\n" + log, fails: true},
		"Empty":  {reason: "no log, no writes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := audit.Parse(strings.NewReader(test.log))
			if (err != nil) != test.fails {
				t.Fatalf("%s: %v", test.reason, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s:\n%s", test.reason, diff)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	writes, err := audit.Parse(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		reason string
		filter audit.Filter
		want   []string
	}{
		"All": {"no filter, all writes", audit.Filter{}, []string{
			"patch services/status a/web 200 system:serviceaccount:berth-system:controller",
			"create speakers n1 403 system:serviceaccount:berth-system:speaker",
		}},
		"ShortUser": {"a ServiceAccount's own name is enough", audit.Filter{User: "controller"}, []string{
			"patch services/status a/web 200 system:serviceaccount:berth-system:controller",
		}},
		"From": {"those that came from an address", audit.Filter{From: "172.30.0.21"}, []string{
			"patch services/status a/web 200 system:serviceaccount:berth-system:controller",
		}},
		"NoSuffix": {"part of a name is not", audit.Filter{User: "troller"}, nil},
		"Since": {"older writes are left out", audit.Filter{Since: writes[1].Time}, []string{
			"create speakers n1 403 system:serviceaccount:berth-system:speaker",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, w := range audit.Select(writes, test.filter) {
				got = append(got, w.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s:\n%s", test.reason, diff)
			}
		})
	}
}
