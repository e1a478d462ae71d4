package slow_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthlb/berth/e2e/lab/pki"
	"github.com/berthlb/berth/e2e/lab/slow"
)

const (
	status = "/api/v1/namespaces/a/services/web/status"
	watch  = "/api/v1/services?watch=true"
	wait   = 100 * time.Millisecond
)

// pair is an API server that notes what it is asked, with a slow one before it and a client of that.
type pair struct {
	*slow.Server

	url    string
	client *http.Client
	heard  chan string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{heard: make(chan string, 10)}
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		p.heard <- fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Authorization"), body)
		fmt.Fprint(w, "done")
	}))
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	authority, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue(pki.Subject{CommonName: "slow", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := issued.TLS()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(upstream.Certificate())
	p.Server = slow.Serve(slow.Options{
		Listener: listener, Certificate: certificate, Upstream: to, TLS: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}, Dial: (&net.Dialer{}).DialContext,
	})
	t.Cleanup(func() { _ = p.Close() }) // its connections are cut
	p.url = "https://" + listener.Addr().String()
	p.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: authority.ClientTLS()}}
	return p
}

// ask sends a request, and answers how long it took.
func (p *pair) ask(ctx context.Context, method, path string) (took time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader("body"))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer token")
	begin := time.Now()
	response, err := p.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.ReadAll(response.Body)
	return time.Since(begin), err
}

func TestManners(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason       string
		manners      slow.Manners
		method, path string
		gives        time.Duration // how long the client waits
		answered     bool
		slowly       bool
		want         slow.Seen
	}{
		"Prompt":   {"without manners all is passed on", slow.Manners{}, "PATCH", status, time.Minute, true, false, slow.Seen{Writes: 1, Statuses: 1}},
		"Late":     {"a write is held back", slow.Manners{Writes: []time.Duration{wait}}, "PATCH", status, time.Minute, true, true, slow.Seen{Writes: 1, Statuses: 1}},
		"GivenUp":  {"a write arrives although its client has given it up", slow.Manners{Writes: []time.Duration{2 * time.Second}}, "PATCH", status, time.Second, false, true, slow.Seen{Writes: 1, Statuses: 1}},
		"Lost":     {"a write is done and not answered", slow.Manners{Lose: 1}, "PATCH", status, time.Minute, false, false, slow.Seen{Writes: 1, Statuses: 1, Lost: 1}},
		"NoStatus": {"other writes are passed on", slow.Manners{Writes: []time.Duration{time.Hour}, Lose: 1}, "PUT", "/lease", time.Minute, true, false, slow.Seen{Writes: 1}},
		"Watch":    {"what a watch shows comes late", slow.Manners{Watches: wait}, "GET", watch, time.Minute, true, true, slow.Seen{Reads: 1}},
		"Read":     {"other reads are passed on", slow.Manners{Watches: time.Hour}, "GET", "/api", time.Minute, true, false, slow.Seen{Reads: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			p.Behave(test.manners)
			ctx, cancel := context.WithTimeout(t.Context(), test.gives)
			defer cancel()
			took, err := p.ask(ctx, test.method, test.path)
			if (err == nil) != test.answered {
				t.Errorf("%s: %v", test.reason, err)
			}
			if test.answered && test.slowly && took < wait {
				t.Errorf("%s: it took %s", test.reason, took)
			}
			path, _, _ := strings.Cut(test.path, "?")
			if diff := cmp.Diff(test.method+" "+path+" Bearer token body", <-p.heard); diff != "" {
				t.Errorf("%s: the API server heard something else (-want +got):\n%s", test.reason, diff)
			}
			if diff := cmp.Diff(test.want, p.Behave(slow.Manners{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}
