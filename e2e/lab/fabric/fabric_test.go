package fabric_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

// patience covers the second that the kernel may take to tell a bridge that its port has a carrier again.
const patience = 5 * time.Second

func TestMain(m *testing.M) {
	sandbox.Dispatch()
	cache, err := build.CacheDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(sandbox.Main(m, cache))
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// network is two hosts, and a pod behind the second that serves HTTP.
type network struct {
	client, node *fabric.Host
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	segment, err := fabric.New(strings.ReplaceAll(t.Name(), "/", "-") + "-")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, segment)
	client, err := segment.AddHost("client", net.HardwareAddr{2, 0, 0, 0, 0, 1}, addrs("172.30.0.100", "fd00:30::100")...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, client)
	node, err := segment.AddHost("n1", net.HardwareAddr{2, 0, 0, 0, 0, 2}, addrs("172.30.0.11", "fd00:30::11")...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, node)
	pod, err := node.AddPod("web", "vethweb", addrs("10.245.1.2", "fd00:245:0:1::2")...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, pod)
	for prefix, via := range map[string]string{"10.245.1.0/24": "172.30.0.11", "fd00:245:0:1::/64": "fd00:30::11"} {
		if err := client.AddRoute(netip.MustParsePrefix(prefix), netip.MustParseAddr(via)); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, pod.Space)
	return &network{client: client, node: node}
}

func closeAtEnd(t *testing.T, what io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := what.Close(); err != nil {
			t.Error(err)
		}
	})
}

// serve answers every request in the namespace with the caller's address.
func serve(t *testing.T, space *fabric.Space) {
	t.Helper()
	var listener net.Listener
	err := space.Do(func() error {
		var err error
		listener, err = net.Listen("tcp", ":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.RemoteAddr)
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

func (n *network) get(url string, wait time.Duration) (string, error) {
	transport := &http.Transport{DialContext: n.client.DialContext, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func TestPodIsReachedThroughItsNode(t *testing.T) {
	n := newNetwork(t)
	for url, want := range map[string]string{"http://10.245.1.2": "172.30.0.100", "http://[fd00:245:0:1::2]": "fd00:30::100"} {
		from, err := n.get(url, patience)
		if err != nil {
			t.Errorf("get %s: %v", url, err)
			continue
		}
		if host, _, _ := net.SplitHostPort(from); host != want {
			t.Errorf("%s saw %s, the client is %s", url, from, want)
		}
	}
}

func TestLinksCanBeCut(t *testing.T) {
	for name, set := range map[string]func(*fabric.Host, fabric.State) error{
		"Port": (*fabric.Host).SetPort, "Link": (*fabric.Host).SetLink,
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			if err := set(n.node, fabric.Down); err != nil {
				t.Fatal(err)
			}
			if _, err := n.get("http://10.245.1.2", time.Second); err == nil {
				t.Error("a node that was cut off still forwards")
			}
			if err := set(n.node, fabric.Up); err != nil {
				t.Fatal(err)
			}
			for _, url := range []string{"http://10.245.1.2", "http://[fd00:245:0:1::2]"} {
				if _, err := n.get(url, patience); err != nil {
					t.Errorf("get %s from a node that came back: %v", url, err)
				}
			}
		})
	}
}
