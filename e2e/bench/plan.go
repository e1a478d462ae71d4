package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/e2e/lab"
)

// PlanLoad is what speakers have to plan, and how often it changes.
type PlanLoad struct {
	Speakers int           // nodes of the lab, each with a speaker
	Nodes    int           // Node objects in all
	Services int           // each with two EndpointSlices
	Rate     int           // changes of EndpointSlices in a second
	For      time.Duration // of each measurement
}

// MostLocal is how many Services can be Local: each takes one of the API server's node ports for its health check.
const MostLocal = 2_700

// PlanCPU measures how busy speakers are while EndpointSlices change, beside how busy they are while nothing does. No
// controller runs meanwhile, and kube-proxy is told to leave the Services alone: neither is part of what is measured.
func PlanCPU(ctx context.Context, options Options, load PlanLoad) error {
	return on(ctx, options, load.Speakers, func(ctx context.Context, b *Bench) error { return b.planCPU(ctx, load) })
}

func (b *Bench) planCPU(ctx context.Context, wanted PlanLoad) error {
	fixture, begin := planFixture{PlanLoad: wanted}, time.Now()
	if err := b.makePlan(ctx, fixture); err != nil {
		return err
	}
	slices, err := b.makePlanSlices(ctx, fixture)
	if err != nil {
		return err
	}
	b.printf("%d Nodes, %d Services (%d Local) and %d EndpointSlices are made (%.0f s)\n",
		wanted.Nodes, wanted.Services, fixture.locals(), len(slices), time.Since(begin).Seconds())
	watched, err := b.startPlanning(ctx, wanted.Speakers)
	if err != nil {
		return err
	}
	if err := b.answered(fixture); err != nil {
		return err
	}
	idle, err := b.settled(ctx, watched, wanted.For)
	if err != nil {
		return err
	}
	b.printUsage("nothing changes", idle)
	made := 0
	busy, err := watched.during(func() (err error) {
		made, err = b.changeSlices(ctx, slices, wanted)
		return err
	})
	if err != nil {
		return err
	}
	b.printUsage(fmt.Sprintf("%d changes in %s", made, wanted.For), busy)
	if due := float64(wanted.Rate) * wanted.For.Seconds(); float64(made) < enoughRate*due {
		return fmt.Errorf("only %d of %.0f changes were made: the run is void", made, due)
	}
	b.printf("load after: %s\n", load())
	memory, err := watched.memory()
	if err != nil {
		return err
	}
	b.printf("bench plan-cpu/memory %.1f MB\n", memory)
	b.printf("bench plan-cpu/idle %.1f %%\n", highestOf(idle))
	b.printf("bench plan-cpu %.1f %%\n", highestOf(busy))
	return nil
}

// printUsage prints how busy each speaker was, in percent of a core.
func (b *Bench) printUsage(what string, usage []float64) {
	b.printf("%s: speakers used", what)
	for _, percent := range usage {
		b.printf(" %.1f %%", percent)
	}
	b.printf(" of a core\n")
}

func highestOf(list []float64) (highest float64) {
	for _, figure := range list {
		highest = max(highest, figure)
	}
	return highest
}

// startPlanning starts the speakers, on nodes whose links are in the pool's subnet.
func (b *Bench) startPlanning(ctx context.Context, count int) (watched processes, err error) {
	for i := 1; i <= count; i++ {
		name := fmt.Sprintf("n%d", i)
		if err := b.addSubnet(name, i); err != nil {
			return nil, err
		}
		if err := b.lab.StartSpeaker(ctx, name, lab.Extra{}); err != nil {
			return nil, err
		}
		process, err := b.lab.SpeakerProcess(name)
		if err != nil {
			return nil, err
		}
		watched = append(watched, process.Pid())
	}
	return watched, nil
}

// answered makes sure that there is something to plan: the speakers answer for some of the Services that are not Local.
func (b *Bench) answered(fixture planFixture) error {
	const asked = 5
	var sample []netip.Addr
	for i := fixture.Services - 1; i > 0 && len(sample) < asked; i-- {
		if !fixture.local(i) {
			sample = append(sample, fixture.address(i))
		}
	}
	deadline := time.Now().Add(patience)
	for {
		_, err := b.owners(sample)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// settled waits until the speakers have done what a start takes, and answers how busy they are then.
func (b *Bench) settled(ctx context.Context, watched processes, span time.Duration) (usage []float64, err error) {
	const calm = 3 // percent of a core
	for range 10 {
		usage, err = watched.during(func() error { return rest(ctx, span) })
		if err != nil || highestOf(usage) < calm {
			return usage, err
		}
	}
	return usage, nil
}

func rest(ctx context.Context, span time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(span):
		return nil
	}
}

// changeSlices changes one endpoint of a slice at a time from ready to not ready or back, and answers how many changes
// were made. The first endpoint of a slice stays ready: to lose the last one is another matter (rule P2).
func (b *Bench) changeSlices(ctx context.Context, slices []*discoveryv1.EndpointSlice, wanted PlanLoad) (made int, err error) {
	random := rand.New(rand.NewPCG(1, uint64(len(slices)))) //nolint:gosec // the same load in every run
	turns := make(chan *discoveryv1.EndpointSlice)
	done := make(chan error)
	const writers = 8
	for range writers {
		go func() { done <- b.writeSlices(ctx, turns) }()
	}
	tick := time.NewTicker(time.Second / time.Duration(wanted.Rate))
	defer tick.Stop()
	order := random.Perm(len(slices))
	for begin := time.Now(); time.Since(begin) < wanted.For && ctx.Err() == nil; made++ {
		<-tick.C
		select {
		case turns <- slices[order[made%len(order)]]:
		case err = <-done: // only one that failed ends by itself
			return made, err
		}
	}
	close(turns)
	for range writers {
		if failed := <-done; failed != nil {
			err = failed
		}
	}
	return made, err
}

// writeSlices changes the slices it is given. A slice comes again only after all others: nobody else changes it.
func (b *Bench) writeSlices(ctx context.Context, turns <-chan *discoveryv1.EndpointSlice) error {
	for slice := range turns {
		ready := slice.Endpoints[len(slice.Endpoints)-1].Conditions.Ready
		*ready = !*ready
		now, err := b.lab.API().DiscoveryV1().EndpointSlices(namespace).Update(ctx, slice, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("change EndpointSlice %s: %w", slice.Name, err)
		}
		slice.ResourceVersion = now.ResourceVersion
	}
	return nil
}
