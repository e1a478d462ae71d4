package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// probeUsage is how the chart's probes call this program.
const probeUsage = "usage: speaker health --health-socket PATH live|ready"

// probe asks the speaker of this pod whether it lives or is ready. It goes through a socket in the pod: over the node's
// network another speaker might answer, while one replaces the other (rule E5).
func probe(ctx context.Context, args []string) error {
	set := pflag.NewFlagSet("speaker health", pflag.ContinueOnError)
	path := set.String("health-socket", "", "socket that the speaker of this pod serves its health on")
	if err := set.Parse(args); err != nil {
		return fmt.Errorf("%w\n%s", err, probeUsage)
	}
	url := map[string]string{"live": "http://speaker/healthz", "ready": "http://speaker/readyz"}[strings.Join(set.Args(), " ")]
	if url == "" || *path == "" {
		return errors.New(probeUsage)
	}
	const limit = time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the speaker: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", *path)
	}}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the speaker: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("ask the speaker: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}

// listenInPod opens the socket that probe asks. A file that an earlier process of the pod left is replaced.
func listenInPod(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s for probes (--health-socket): %w", path, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("open %s for probes (--health-socket): %w", path, err)
	}
	return listener, nil
}
