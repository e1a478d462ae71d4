package demo

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/lab"
)

//go:embed manifests/*.yaml
var manifests embed.FS

const (
	// patience is far above what any step takes: it only bounds the wait for something that never comes.
	patience = 30 * time.Second
	// lookEvery is how often something is looked for.
	lookEvery = 50 * time.Millisecond
)

// until looks until what is looked for is there; the error of look says what is there instead.
func until(ctx context.Context, look func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last error
	for {
		err := look(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // what came after the time was up only says that it was up
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %s: %w", patience, last)
		case <-tick.C:
		}
	}
}

// kubectl runs kubectl with all rights.
func (d *demo) kubectl(ctx context.Context, stdin []byte, args ...string) (string, error) {
	call := lab.KubectlCall{Kubeconfig: d.lab.Kubeconfig("admin"), Stdin: stdin}
	stdout, stderr, err := d.lab.Kubectl(ctx, call, args...)
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr))
	}
	return strings.TrimSpace(stdout), nil
}

// apply is kubectl apply of one of the manifests.
func (d *demo) apply(ctx context.Context, name string) error {
	text, err := manifests.ReadFile("manifests/" + name)
	if err != nil {
		return fmt.Errorf("read the manifest %s: %w", name, err)
	}
	_, err = d.kubectl(ctx, bytes.TrimSpace(text), "apply", "--server-side", "-f", "-")
	return err
}

// page is what a pod of the web Deployment answers.
type page struct {
	pod, node string
	source    string // the address that the pod saw asking
}

// parsePage reads the line "pod=NAME node=NODE src=ADDRESS:PORT".
func parsePage(body string) (page, error) {
	var p page
	if _, err := fmt.Sscanf(body, "pod=%s node=%s src=%s", &p.pod, &p.node, &p.source); err != nil {
		return page{}, fmt.Errorf("the answer is %q, which no pod of the Service gives", body)
	}
	host := strings.LastIndexByte(p.source, ':')
	if host < 0 {
		return page{}, errors.New("the pod's answer names no port: " + p.source)
	}
	p.source = strings.Trim(p.source[:host], "[]")
	return p, nil
}

// fetch asks the Service for its page, over a new connection from the client.
func (d *demo) fetch(ctx context.Context) (page, error) {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	body, err := d.lab.Client().Get(ctx, "http://"+d.address.String()+"/")
	if err != nil {
		return page{}, err
	}
	return parsePage(body)
}

// pages are the answers to a number of questions.
type pages struct {
	asked          int
	sources, nodes map[string]int
}

// fetchMany asks for the page over that many new connections; the first that fails is an error.
func (d *demo) fetchMany(ctx context.Context, count int) (pages, error) {
	all := pages{sources: map[string]int{}, nodes: map[string]int{}}
	for range count {
		page, err := d.fetch(ctx)
		if err != nil {
			return all, fmt.Errorf("after %d of %d answers: %w", all.asked, count, err)
		}
		all.asked++
		all.sources[page.source]++
		all.nodes[page.node]++
	}
	return all, nil
}

// answering asks the client's segment who has the Service's address, several times, and answers the names of all hosts
// that said they have, with their MACs.
func (d *demo) answering(count int) (names, macs []string, err error) {
	const wait = 100 * time.Millisecond
	seen := map[string]bool{}
	for range count {
		found, err := d.lab.Client().WhoHas(d.address, wait)
		if err != nil {
			return nil, nil, err
		}
		for _, mac := range found {
			if !seen[mac] {
				seen[mac] = true
				names, macs = append(names, d.lab.NameOf(mac)), append(macs, mac)
			}
		}
	}
	return names, macs, nil
}
