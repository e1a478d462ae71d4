package bench

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthlb/berth/e2e/gap"
	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/frames"
)

// Cause is how the owning node is lost.
type Cause string

// The causes.
const (
	Cut  Cause = "cut"  // its cable is pulled at the segment's end: its own link stays up
	Link Cause = "link" // its link goes down on the node itself
)

// Failover says what to measure.
type Failover struct {
	Nodes     int
	Addresses int
	Trials    []Trials // the first one's median is the headline
}

// Trials is a number of trials with one cause.
type Trials struct {
	Cause Cause
	Count int
}

// MostAddresses is how many addresses of the segment are free for Services: 172.30.0.128 to .254.
const MostAddresses = 127

// trial is what one trial gave.
type trial struct {
	node        string
	moved       int
	first, last time.Duration // from the cause to the first gratuitous frame of the first and of the last address
	gap         gap.Gap
	rate        float64 // the part of its attempts that the client made
}

// enoughRate is what the client must have made of its attempts for its gap to count.
const enoughRate = 0.95

// FailoverNode measures how long after the loss of the node that owns most addresses the last of them is announced by
// another, and how long a client's new connections to one of them fail.
//
// The Services have externalTrafficPolicy Local and a pod on every node: after a move no connection goes to the pod on
// the lost node, which Kubernetes counts as an endpoint for many seconds more.
func FailoverNode(ctx context.Context, options Options, wanted Failover) error {
	return on(ctx, options, wanted.Nodes, func(ctx context.Context, b *Bench) error {
		return b.failover(ctx, wanted)
	})
}

func (b *Bench) failover(ctx context.Context, wanted Failover) error {
	addresses, err := b.prepareFailover(ctx, wanted)
	if err != nil {
		return err
	}
	var headline time.Duration
	for i, trials := range wanted.Trials {
		done, err := b.failoverTrials(ctx, wanted.Nodes, addresses, trials)
		if err != nil {
			return err
		}
		if i == 0 {
			headline = done.percentile(median)
		}
	}
	b.printf("load after: %s\n", load())
	b.printf("bench failover-node %s ms\n", ms(headline))
	return nil
}

// prepareFailover makes pods and Services, and waits until all is calm.
func (b *Bench) prepareFailover(ctx context.Context, wanted Failover) ([]netip.Addr, error) {
	if err := b.lab.StartBerth(ctx); err != nil {
		return nil, err
	}
	if err := b.makePool(ctx, "172.30.0.128-172.30.0.254"); err != nil {
		return nil, err
	}
	if err := b.startPods(ctx, wanted.Nodes); err != nil {
		return nil, err
	}
	if err := b.makeServices(ctx, wanted.Addresses, corev1.ServiceExternalTrafficPolicyLocal); err != nil {
		return nil, err
	}
	addresses, err := b.addresses(ctx, wanted.Addresses)
	if err != nil {
		return nil, err
	}
	owners, err := b.calm(ctx, wanted.Nodes, addresses)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, owner := range owners {
		count[owner]++
	}
	b.printf("%d addresses, answered for by %v; policy Local, a pod on each node\n", len(addresses), count)
	return addresses, nil
}

// calm waits until each address is answered for by one node, every node answers for some, and no speaker announces
// anything any more (the last burst is followed by none for two seconds). It answers the owners.
func (b *Bench) calm(ctx context.Context, nodes int, addresses []netip.Addr) (owners map[netip.Addr]string, err error) {
	const quiet = 2500 * time.Millisecond
	err = until(ctx, func(context.Context) error {
		since := time.Now().Add(-quiet)
		if recent := firsts(b.lab.Client().Frames(since), addresses, anyFrame); len(recent) > 0 {
			return fmt.Errorf("%d addresses are still being announced", len(recent))
		}
		owners, err = b.owners(addresses)
		if err == nil && hosts(owners) != min(nodes, len(addresses)) {
			err = fmt.Errorf("only %d nodes answer", hosts(owners))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for calm: %w", err)
	}
	return owners, nil
}

func anyFrame(frames.Frame) bool { return true }

// failoverTrials runs the trials of one cause, prints what each gave, and their figures.
func (b *Bench) failoverTrials(ctx context.Context, nodes int, addresses []netip.Addr, trials Trials) (last figures, err error) {
	var first, gaps figures
	for i := range trials.Count {
		owners, err := b.calm(ctx, nodes, addresses)
		if err != nil {
			return nil, err
		}
		t, err := b.failoverTrial(ctx, trials.Cause, owners, i)
		if err != nil {
			return nil, fmt.Errorf("trial %d, %s: %w", i+1, trials.Cause, err)
		}
		void := ""
		if t.rate < enoughRate {
			void = ", gap void"
		} else {
			gaps = append(gaps, t.gap.Length())
		}
		b.printf("trial %s %d: %s lost, %d addresses; first frame %s ms, of the last address %s ms; client's gap %s ms "+
			"(%d failed in it, %d later, at %.0f %% of its rate%s)\n", trials.Cause, i+1, t.node, t.moved, ms(t.first), ms(t.last),
			ms(t.gap.Length()), t.gap.Failed, t.gap.Relapses, 100*t.rate, void)
		first, last = append(first, t.first), append(last, t.last)
	}
	name := "failover-node/" + string(trials.Cause)
	b.spread(name+"/first-address", first)
	b.spread(name+"/client-gap", gaps)
	b.spread(name, last)
	return last, nil
}

// failoverTrial takes the node that owns most addresses from the segment, waits until others have announced all of them
// and the client is answered again, and gives it back.
func (b *Bench) failoverTrial(ctx context.Context, cause Cause, owners map[netip.Addr]string, number int) (t trial, err error) {
	name, moved := busiest(owners)
	node, err := b.lab.Node(name)
	if err != nil {
		return t, err
	}
	meter := gap.Start(ctx, b.lab.Client().Space(), netip.AddrPortFrom(moved[number%len(moved)], port))
	defer meter.Stop()
	if err := until(ctx, func(context.Context) error { return meter.Record().Steady() }); err != nil {
		return t, err
	}
	lost := time.Now()
	if err := lose(node, cause); err != nil {
		return t, err
	}
	times, err := b.awaitSuccessors(ctx, meter, lost, moved, name)
	if err != nil {
		return t, err
	}
	record := meter.Stop()
	first, last := span(times)
	t = trial{
		node: name, moved: len(moved), first: first.Sub(lost), last: last.Sub(lost),
		gap: record.After(lost), rate: record.Rate(),
	}
	return t, giveBack(ctx, node, cause)
}

// awaitSuccessors waits for a frame about each address from another node than the lost one, and for the client.
func (b *Bench) awaitSuccessors(
	ctx context.Context, meter *gap.Meter, lost time.Time, moved []netip.Addr, name string,
) (times map[netip.Addr]time.Time, err error) {
	fromOthers := func(f frames.Frame) bool { return b.lab.NameOf(f.Source.String()) != name }
	err = until(ctx, func(context.Context) error {
		times = firsts(b.lab.Client().Frames(lost), moved, fromOthers)
		if len(times) < len(moved) {
			return fmt.Errorf("%d of the %d addresses of %s were announced by others", len(times), len(moved), name)
		}
		if g := meter.Record().After(lost); !g.Closed() {
			return fmt.Errorf("since %s was lost no connection has failed and then succeeded: %d failed", name, g.Failed)
		}
		return nil
	})
	return times, err
}

func lose(node *lab.Node, cause Cause) error {
	if cause == Link {
		return node.LinkDown()
	}
	return node.Cut()
}

func giveBack(ctx context.Context, node *lab.Node, cause Cause) error {
	if cause == Link {
		return node.LinkUp()
	}
	return node.Restore(ctx)
}
