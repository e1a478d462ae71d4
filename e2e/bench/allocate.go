package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/audit"
)

// allocation is what one party did to all Services, from the API server's audit log. Times are since it began.
type allocation struct {
	first, last time.Duration // until the first Service's status was written, and the last one's
	statuses    int           // all writes of statuses until it was quiet
	events      int           // all events until it was quiet
	announced   int           // of the statuses, those that say who announces the address; each has an event too
}

// writing is how long it wrote first answers.
func (a allocation) writing() time.Duration { return a.last - a.first }

// allocating is how many writes, of statuses and events, gave the addresses.
func (a allocation) allocating() int { return a.statuses + a.events - a.announcing() }

// announcing is how many writes said who announces them.
func (a allocation) announcing() int { return 2 * a.announced }

// Allocate measures how long a controller that starts takes to give addresses to Services that wait, beside a bare
// writer that sends the same statuses and events for the same Services, with the same concurrency. Both do it twice, in
// both orders; statuses are emptied in between. There is no node, so that nothing else is busy with the Services.
func Allocate(ctx context.Context, options Options, services int) error {
	return on(ctx, options, 0, func(ctx context.Context, b *Bench) error { return b.allocate(ctx, services) })
}

func (b *Bench) allocate(ctx context.Context, count int) error {
	if err := b.lab.InstallBerth(ctx); err != nil {
		return err
	}
	if err := b.makePool(ctx, "10.200.0.0/16"); err != nil {
		return err
	}
	// The first start gives the bare writer a host and rights to use, and is no trial.
	if err := b.lab.StartController(ctx, controllerName, lab.Extra{}); err != nil {
		return err
	}
	if err := b.stopController(ctx); err != nil {
		return err
	}
	if err := b.makeServices(ctx, count, corev1.ServiceExternalTrafficPolicyCluster); err != nil {
		return err
	}
	var product, bare []allocation
	for _, order := range [][]party{{berthParty, bareParty}, {bareParty, berthParty}} {
		for _, who := range order {
			a, err := b.allocateOnce(ctx, who, count)
			if err != nil {
				return fmt.Errorf("%s: %w", who, err)
			}
			b.printf("trial %s: first status after %s ms, last after %s ms; %d writes of statuses and %d events, "+
				"%d of each to say who announces the address\n", who, ms(a.first), ms(a.last), a.statuses, a.events, a.announced)
			if who == berthParty {
				product = append(product, a)
			} else {
				bare = append(bare, a)
			}
		}
	}
	b.printf("load after: %s\n", load())
	b.printAllocate(product, bare, count)
	return nil
}

// printAllocate prints the figures of the trials, each the mean of its two.
func (b *Bench) printAllocate(product, bare []allocation, count int) {
	last := func(a allocation) time.Duration { return a.last }
	b.printf("bench allocate/bare-writer %s ms\n", ms(mean(bare, allocation.writing)))
	b.printf("bench allocate/writing %s ms ratio %.2f\n", ms(mean(product, allocation.writing)),
		ratio(mean(product, allocation.writing), mean(bare, allocation.writing)))
	b.printf("bench allocate/announced-writes-per-service %.2f count\n", perService(product, allocation.announcing, count))
	b.printf("bench allocate/writes-per-service %.2f count\n", perService(product, allocation.allocating, count))
	b.printf("bench allocate %s ms ratio %.2f\n", ms(mean(product, last)), ratio(mean(product, last), mean(bare, last)))
}

func mean(list []allocation, of func(allocation) time.Duration) time.Duration {
	var sum time.Duration
	for _, a := range list {
		sum += of(a)
	}
	return sum / time.Duration(len(list))
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func perService(list []allocation, of func(allocation) int, count int) float64 {
	sum := 0
	for _, a := range list {
		sum += of(a)
	}
	return float64(sum) / float64(count*len(list))
}

// party is who gives the addresses.
type party string

const (
	berthParty party = "controller"
	bareParty  party = "bare writer"

	controllerName = "a"
	// controllerUser is who writes in both cases, as the audit log names it.
	controllerUser = lab.BerthNamespace + ":controller"
)

// allocateOnce has one party give addresses to all Services, and empties their statuses afterwards.
func (b *Bench) allocateOnce(ctx context.Context, who party, count int) (allocation, error) {
	services, err := b.lab.API().CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return allocation{}, err
	}
	begin := time.Now()
	if who == bareParty {
		err = b.writeBare(ctx, services.Items)
	} else {
		err = b.lab.StartController(ctx, controllerName, lab.Extra{NoWait: true})
	}
	if err != nil {
		return allocation{}, err
	}
	writes, err := b.awaitQuiet(ctx, begin, count)
	if err != nil {
		return allocation{}, err
	}
	if who == berthParty {
		if err := b.stopController(ctx); err != nil {
			return allocation{}, err
		}
	}
	a := account(writes, begin)
	if a.announced, err = b.announceEvents(ctx, begin); err != nil {
		return allocation{}, err
	}
	return a, b.emptyStatuses(ctx, count)
}

// announceEvents counts the events that say who announces an address: the audit log does not tell what was written.
func (b *Bench) announceEvents(ctx context.Context, since time.Time) (int, error) {
	list, err := b.lab.API().EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list events: %w", err)
	}
	count := 0
	for i := range list.Items {
		if list.Items[i].Action == "Announce" && !list.Items[i].EventTime.Time.Before(since) {
			count++
		}
	}
	return count, nil
}

// account finds in the writes of one party when each Service got its first answer.
func account(writes []audit.Write, begin time.Time) (a allocation) {
	answered := map[string]bool{}
	for _, w := range writes {
		if w.Resource != "services/status" {
			a.events++
			continue
		}
		a.statuses++
		if answered[w.Name] {
			continue
		}
		answered[w.Name] = true
		at := w.Time.Sub(begin)
		if len(answered) == 1 || at < a.first {
			a.first = at
		}
		a.last = max(a.last, at)
	}
	return a
}

// awaitQuiet waits until every Service's status has been written and nothing has for two seconds, and answers all writes
// of statuses and events that succeeded.
func (b *Bench) awaitQuiet(ctx context.Context, begin time.Time, count int) ([]audit.Write, error) {
	const quiet, lookEvery = 2 * time.Second, 500 * time.Millisecond
	limit := time.NewTimer(patience + time.Duration(count)*time.Second/20) // Announced is written 50 times a second
	defer limit.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		writes, err := b.controllerWrites(begin)
		if err != nil {
			return nil, err
		}
		seen := map[string]bool{}
		var last time.Time
		for _, w := range writes {
			seen[w.Resource+w.Name] = w.Resource == "services/status"
			last = w.Time
		}
		answered := 0
		for _, isStatus := range seen {
			if isStatus {
				answered++
			}
		}
		if answered == count && time.Since(last) > quiet {
			return writes, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, fmt.Errorf("%d of %d Services were answered, the last write was %s ago", answered, count, time.Since(last))
		case <-tick.C:
		}
	}
}

// controllerWrites answers the writes of the controller's user that succeeded, of statuses and events of Services.
func (b *Bench) controllerWrites(since time.Time) ([]audit.Write, error) {
	all, err := b.lab.Writes(audit.Filter{User: controllerUser, Since: since})
	if err != nil {
		return nil, err
	}
	var wanted []audit.Write
	for _, w := range all {
		about := w.Namespace == namespace && strings.HasPrefix(w.Name, "bench-")
		if about && w.Code/100 == 2 && (w.Resource == "services/status" || w.Resource == "events") {
			wanted = append(wanted, w)
		}
	}
	return wanted, nil
}

func (b *Bench) stopController(ctx context.Context) error {
	process, err := b.lab.ControllerProcess(controllerName)
	if err != nil {
		return err
	}
	if err := lab.Stop(process); err != nil {
		return err
	}
	if err := process.Err(); err != nil {
		return errors.Join(errors.New("the controller did not end well"), err)
	}
	return b.awaitLease(ctx)
}

// awaitLease waits until the Lease can be taken at once: what is measured is not how the controller before it ended. One
// that was not given back is waited for, and said.
func (b *Bench) awaitLease(ctx context.Context) error {
	said := false
	return until(ctx, func(ctx context.Context) error {
		lease, err := b.lab.API().CoordinationV1().Leases(lab.BerthNamespace).Get(ctx, "berth-controller", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil // it was stopped before it could ask for the Lease
		}
		if err != nil {
			return err
		}
		spec := lease.Spec
		if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
			return nil
		}
		end := spec.RenewTime.Add(time.Duration(*spec.LeaseDurationSeconds) * time.Second)
		if time.Now().After(end) {
			return nil
		}
		if !said {
			said = true
			b.printf("the stopped controller did not give its Lease back: waiting %s ms for its end\n", ms(time.Until(end)))
		}
		return fmt.Errorf("the Lease is held until %s", end)
	})
}
