package demo

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthlb/berth/e2e/gap"
)

const (
	clientAddress = "172.30.0.100"
	port          = 80
	// questions is how many new connections are opened to look at the answers.
	questions = 30
)

func (d *demo) fetchCluster(ctx context.Context) (string, error) {
	// kube-proxy learns of the address from the Service's status too, and need not be quicker than we are.
	if err := until(ctx, func(ctx context.Context) error { _, err := d.fetch(ctx); return err }); err != nil {
		return "", err
	}
	all, err := d.fetchMany(ctx, questions)
	if err != nil {
		return "", err
	}
	if all.sources[clientAddress] > 0 {
		return "", fmt.Errorf("%d of %d pods saw the client's own address", all.sources[clientAddress], questions)
	}
	if len(all.nodes) < nodes {
		return "", fmt.Errorf("%d connections reached only pods on %s", questions, list(all.nodes))
	}
	return fmt.Sprintf("%d of %d connections answered, by pods on %s.\nThe pods saw %s as source, never the client's %s.",
		all.asked, questions, list(all.nodes), list(all.sources), clientAddress), nil
}

func (d *demo) fetchLocal(ctx context.Context) (string, error) {
	if err := d.setLocal(ctx); err != nil {
		return "", err
	}
	err := until(ctx, func(ctx context.Context) error {
		page, err := d.fetch(ctx)
		if err == nil && page.source != clientAddress {
			err = fmt.Errorf("a pod on %s sees %s as source", page.node, page.source)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if err := d.takeOwner(ctx); err != nil {
		return "", err
	}
	all, err := d.fetchMany(ctx, questions)
	if err != nil {
		return "", err
	}
	if all.sources[clientAddress] != questions || all.nodes[d.owner] != questions {
		return "", fmt.Errorf("%s answers; pods on %s saw the sources %s", d.owner, list(all.nodes), list(all.sources))
	}
	return fmt.Sprintf("%d of %d connections answered, all by the pod on %s, which answers for the address.\nThe pod saw the client's own address, %s.",
		all.asked, questions, d.owner, clientAddress), nil
}

func (d *demo) setLocal(ctx context.Context) error {
	_, err := d.kubectl(ctx, nil, "patch", "service", "web", "-p", `{"spec":{"externalTrafficPolicy":"Local"}}`)
	return err
}

// takeOwner notes the one node that answers now.
func (d *demo) takeOwner(ctx context.Context) error {
	return until(ctx, func(context.Context) error {
		names, _, err := d.answering(1)
		if err == nil && len(names) != 1 {
			err = fmt.Errorf("%d hosts answer for %s: %v", len(names), d.address, names)
		}
		if err == nil {
			d.owner = names[0]
		}
		return err
	})
}

// cutOwner pulls the cable and measures, in the client, how long new connections fail.
func (d *demo) cutOwner(ctx context.Context) (string, error) {
	before := d.owner
	node, err := d.lab.Node(before)
	if err != nil {
		return "", err
	}
	meter := gap.Start(ctx, d.lab.Client().Space(), netip.AddrPortFrom(d.address, port))
	defer meter.Stop()
	if err := until(ctx, func(context.Context) error { return meter.Record().Steady() }); err != nil {
		return "", err
	}
	cause := time.Now()
	if err := node.Cut(); err != nil {
		return "", err
	}
	err = until(ctx, func(context.Context) error {
		if now := meter.Record().After(cause); !now.Closed() {
			return fmt.Errorf("%d connections failed since the cable was pulled, and none has succeeded since", now.Failed)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	successor, err := d.seeSuccessor(ctx, before)
	if err != nil {
		return "", err
	}
	return sentence(meter.Stop().After(cause)) + successor, nil
}

// sentence says how long connections failed.
func sentence(g gap.Gap) string {
	text := fmt.Sprintf("new connections failed for %d ms, from the first of %d that failed to the first\nthat succeeded",
		g.Length().Milliseconds(), g.Failed)
	if g.Relapses > 0 {
		text += fmt.Sprintf("; %d failed after that", g.Relapses)
	}
	return text + ". "
}

// seeSuccessor looks who answers now, in ARP and in HTTP.
func (d *demo) seeSuccessor(ctx context.Context, before string) (string, error) {
	if err := d.takeOwner(ctx); err != nil {
		return "", err
	}
	if d.owner == before {
		return "", fmt.Errorf("%s still answers, although its cable was pulled", before)
	}
	all, err := d.fetchMany(ctx, questions)
	if err != nil {
		return "", err
	}
	if all.nodes[d.owner] != questions || all.sources[clientAddress] != questions {
		return "", fmt.Errorf("%s answers; pods on %s saw the sources %s", d.owner, list(all.nodes), list(all.sources))
	}
	said, err := d.awaitAnnounced(ctx, d.owner)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Now %s answers in place of %s: %d of %d connections, client's source kept.\nThe Service's status: %q.",
		d.owner, before, all.asked, questions, said), nil
}

// list joins names with commas, in order.
func list(names map[string]int) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}
