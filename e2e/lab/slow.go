package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"github.com/berthlb/berth/e2e/lab/pki"
	"github.com/berthlb/berth/e2e/lab/slow"
)

// slowPort is where the API server is reached by way of what makes it slow.
const slowPort = 6444

// slowAPIServer answers the server that stands before the API server, which it starts the first time.
func (l *Lab) slowAPIServer() (*slow.Server, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slow != nil {
		return l.slow, nil
	}
	host := controlAddrs()[0]
	issued, err := l.authority.Issue(pki.Subject{CommonName: "slow", Addrs: []netip.Addr{host}})
	if err != nil {
		return nil, err
	}
	certificate, err := issued.TLS()
	if err != nil {
		return nil, err
	}
	upstream, err := url.Parse(apiServer)
	if err != nil {
		return nil, err
	}
	var listener net.Listener
	err = l.Control().Do(func() error {
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", netip.AddrPortFrom(host, slowPort).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("stand before the API server: %w", err)
	}
	l.slow = slow.Serve(slow.Options{
		Listener: listener, Certificate: certificate, Upstream: upstream, TLS: l.authority.ClientTLS(), Dial: l.Control().DialContext,
	})
	return l.slow, nil
}

// SlowAPIServer makes the API server have these manners for programs that were started with Extra.Slow, and answers what
// they asked of it since the last call.
func (l *Lab) SlowAPIServer(manners slow.Manners) (slow.Seen, error) {
	server, err := l.slowAPIServer()
	if err != nil {
		return slow.Seen{}, err
	}
	return server.Behave(manners), nil
}

// slowKubeconfig writes a kubeconfig file of a ServiceAccount that leads to the slow server.
func (l *Lab) slowKubeconfig(ctx context.Context, file, account string) (string, error) {
	if _, err := l.slowAPIServer(); err != nil {
		return "", err
	}
	token, err := l.tokenFor(ctx, account, "")
	if err != nil {
		return "", err
	}
	path := l.Kubeconfig(file)
	server := url.URL{Scheme: "https", Host: netip.AddrPortFrom(controlAddrs()[0], slowPort).String()}
	return path, l.authority.WriteKubeconfig(path, server.String(), "", pki.User{Token: token})
}
