package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/frames"
)

// Takeover says how a cluster is to be disturbed in which nothing is wrong.
type Takeover struct {
	Nodes     int
	Addresses int
	Loss      int           // of each hundred frames that come in on a node's link, so many are lost
	Burners   int           // processes that do nothing but use a processor
	For       time.Duration // in all: one half with strict ARP, as IPVS wants it, the other without
}

// burner is a program that uses a processor.
const burner = "while :; do :; done"

// FalseTakeover counts how often an address changes its owner while frames are lost and the processors are busy, but no
// node, link or speaker has failed. In the end a cable is pulled: then what has counted none has to count some.
func FalseTakeover(ctx context.Context, options Options, wanted Takeover) error {
	return on(ctx, options, wanted.Nodes, func(ctx context.Context, b *Bench) error {
		return b.falseTakeover(ctx, wanted)
	})
}

func (b *Bench) falseTakeover(ctx context.Context, wanted Takeover) error {
	addresses, err := b.prepareFailover(ctx, Failover{Nodes: wanted.Nodes, Addresses: wanted.Addresses})
	if err != nil {
		return err
	}
	owners, err := b.owners(addresses)
	if err != nil {
		return err
	}
	changes := 0
	for _, strict := range []bool{false, true} {
		counted, err := b.disturb(ctx, wanted, owners, strict)
		if err != nil {
			return err
		}
		changes += counted
	}
	if err := b.showThatTheyCount(ctx, owners); err != nil {
		return err
	}
	b.printf("load after: %s\n", load())
	b.printf("bench false-takeover %d count\n", changes)
	return nil
}

// disturb loses frames and uses the processors for half of the time.
func (b *Bench) disturb(ctx context.Context, wanted Takeover, owners map[netip.Addr]string, strict bool) (changes int, err error) {
	name := "false-takeover/lax-arp"
	if strict {
		name = "false-takeover/strict-arp"
	}
	for _, node := range b.lab.Nodes() {
		if err := setStrictARP(node, strict); err != nil {
			return 0, err
		}
		if err := loseSome(ctx, node, wanted.Loss); err != nil {
			return 0, err
		}
	}
	burning, stop := context.WithTimeout(ctx, wanted.For/2)
	defer stop()
	var running sync.WaitGroup
	for i := range wanted.Burners {
		node := b.lab.Nodes()[i%len(b.lab.Nodes())]
		running.Go(func() { _, _ = node.Exec(burning, "sh", "-c", burner) })
	}
	since := time.Now()
	running.Wait()
	<-burning.Done()
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("disturb the cluster: %w", err)
	}
	for _, node := range b.lab.Nodes() {
		if _, err := node.Exec(ctx, "nft", "delete", "table", "netdev", "loss"); err != nil {
			return 0, fmt.Errorf("stop losing frames on %s: %w", node.Name, err)
		}
	}
	changes, repeated := b.ownerChanges(since, owners)
	b.printf("%s in %s, %d of 100 frames lost, %d processes busy, load %s: %d gratuitous frames of the owners\n",
		name, wanted.For/2, wanted.Loss, wanted.Burners, load(), repeated)
	b.printf("bench %s %d count\n", name, changes)
	return changes, nil
}

// setStrictARP sets what kube-proxy's strictARP sets.
func setStrictARP(node *lab.Node, strict bool) error {
	ignore, announce := "0", "0"
	if strict {
		ignore, announce = "1", "2"
	}
	space, err := node.Space()
	if err != nil {
		return err
	}
	return errors.Join(space.Sysctl("ipv4/conf/all/arp_ignore", ignore), space.Sysctl("ipv4/conf/all/arp_announce", announce))
}

// loseSome has a node lose frames that come in on its link.
func loseSome(ctx context.Context, node *lab.Node, percent int) error {
	for _, command := range [][]string{
		{"add", "table", "netdev", "loss"},
		{"add", "chain", "netdev", "loss", "in", "{ type filter hook ingress device eth0 priority 0; }"},
		{"add", "rule", "netdev", "loss", "in", "numgen", "random", "mod", "100", "<", strconv.Itoa(percent), "counter", "drop"},
	} {
		if _, err := node.Exec(ctx, append([]string{"nft"}, command...)...); err != nil {
			return fmt.Errorf("lose frames on %s: %w", node.Name, err)
		}
	}
	return nil
}

// ownerChanges counts, in the frames that the client has seen since, how often another node than the last one has said
// that it has an address, and how often the owner has said so again. owners is brought up to date.
func (b *Bench) ownerChanges(since time.Time, owners map[netip.Addr]string) (changes, repeated int) {
	for _, f := range b.lab.Client().Frames(since) {
		owner, ours := owners[f.Subject()]
		if f.Outgoing || !f.Gratuitous() || !ours {
			continue
		}
		if name := b.lab.NameOf(f.Source.String()); name != owner {
			owners[f.Subject()] = name
			changes++
		} else {
			repeated++
		}
	}
	return changes, repeated
}

// showThatTheyCount cuts a node off, and waits until its addresses have changed hands.
func (b *Bench) showThatTheyCount(ctx context.Context, owners map[netip.Addr]string) error {
	name, moved := busiest(owners)
	node, err := b.lab.Node(name)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := node.Cut(); err != nil {
		return err
	}
	fromOthers := func(f frames.Frame) bool { return b.lab.NameOf(f.Source.String()) != name }
	err = until(ctx, func(context.Context) error {
		if n := len(firsts(b.lab.Client().Frames(since), moved, fromOthers)); n < len(moved) {
			return fmt.Errorf("%d of %d addresses of %s have changed hands", n, len(moved), name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	changes, _ := b.ownerChanges(since, owners)
	b.printf("control: with the cable of %s pulled there were %d changes\n", name, changes)
	b.printf("bench false-takeover/control %d count\n", changes)
	return nil
}
