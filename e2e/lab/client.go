package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/berthlb/berth/e2e/lab/fabric"
	"github.com/berthlb/berth/e2e/lab/frames"
)

// Client is a host on the segment that is not part of the cluster. Everything it sees of neighbours is recorded.
type Client struct {
	host     *fabric.Host
	recorder *frames.Recorder
}

func newClient(l *Lab) (*Client, error) {
	host, err := l.segment.AddHost("client", clientMAC(), clientAddrs()...)
	if err != nil {
		return nil, err
	}
	recorder, err := frames.Record(host.Space, "eth0")
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	return &Client{host: host, recorder: recorder}, nil
}

func (c *Client) close() error { return errors.Join(c.recorder.Close(), c.host.Close()) }

// Space is the client's network namespace.
func (c *Client) Space() *fabric.Space { return c.host.Space }

// Frames answers what was recorded since a moment, in order.
func (c *Client) Frames(since time.Time) []frames.Frame { return c.recorder.Since(since) }

// Get asks an HTTP server over a new connection and answers the body; any status but 2xx is an error.
func (c *Client) Get(ctx context.Context, url string) (string, error) {
	return Get(ctx, c.host.Space, url)
}

// Get asks an HTTP server, whose address is numeric, over a new connection from a namespace and answers the body; any
// status but 2xx is an error.
func Get(ctx context.Context, from *fabric.Space, url string) (string, error) {
	transport := &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", url, err)
	}
	if response.StatusCode/100 != 2 {
		return string(body), fmt.Errorf("get %s: %s", url, response.Status)
	}
	return string(body), nil
}

// WhoHas asks the segment for an address and answers the MACs that claim it within wait.
func (c *Client) WhoHas(target netip.Addr, wait time.Duration) ([]string, error) {
	source := clientAddrs()[0]
	if target.Is6() {
		source = clientAddrs()[1]
	}
	return c.recorder.Probe(frames.Question{Target: target, Source: source, MAC: clientMAC()}, wait)
}

// Neighbours answers the client's neighbour table.
func (c *Client) Neighbours() ([]netlink.Neigh, error) {
	links, err := c.host.Links()
	if err != nil {
		return nil, err
	}
	defer links.Close()
	return links.NeighList(0, netlink.FAMILY_ALL)
}

// FlushNeighbours empties the client's neighbour table.
func (c *Client) FlushNeighbours() error {
	links, err := c.host.Links()
	if err != nil {
		return err
	}
	defer links.Close()
	neighbours, err := links.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("read the neighbour table: %w", err)
	}
	for i := range neighbours {
		if neighbours[i].State&netlink.NUD_NOARP != 0 {
			continue // multicast: no host is behind it
		}
		if err := links.NeighDel(&neighbours[i]); err != nil {
			return fmt.Errorf("forget neighbour %s: %w", neighbours[i].IP, err)
		}
	}
	return nil
}

// Exec runs a command in the client's network namespace.
func (c *Client) Exec(ctx context.Context, argv ...string) (string, error) {
	return execIn(ctx, c.host.Space, argv...)
}

// execIn runs a command in a namespace and answers its output; what it says on its standard error is in the error.
func execIn(ctx context.Context, space *fabric.Space, argv ...string) (string, error) {
	if len(argv) == 0 {
		return "", errors.New("run a command: none is given")
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := space.Do(cmd.Start); err != nil {
		return "", fmt.Errorf("start %s: %w", argv[0], err)
	}
	if err := cmd.Wait(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
