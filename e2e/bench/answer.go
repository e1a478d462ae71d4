package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/e2e/gap"
	"github.com/berthlb/berth/e2e/lab/frames"
)

// failures are the attempts that failed before the first connection was opened.
type failures struct {
	before      int // began before anybody had said to have the address: they cannot have been answered
	lost        int // began later, and nobody answered the SYN
	refused     int // began later, and a RST came
	unreachable int // began later, and an ICMP message came
}

// add counts a failed attempt; answered is when the first frame came that said who has the address, zero if none did.
func (f *failures) add(attempt gap.Attempt, answered time.Time) {
	switch {
	case answered.IsZero() || attempt.Begin.Before(answered):
		f.before++
	case errors.Is(attempt.Err, syscall.ECONNREFUSED):
		f.refused++
	case errors.Is(attempt.Err, syscall.EHOSTUNREACH), errors.Is(attempt.Err, syscall.ENETUNREACH):
		f.unreachable++
	default:
		f.lost++
	}
}

// FirstAnswer measures how long after a Service is created, whose pods are ready, a client that learns its address from
// its status opens the first connection, and what the client meets before.
func FirstAnswer(ctx context.Context, options Options, nodes, trials int) error {
	return on(ctx, options, nodes, func(ctx context.Context, b *Bench) error {
		return b.firstAnswer(ctx, nodes, trials)
	})
}

func (b *Bench) firstAnswer(ctx context.Context, nodes, trials int) error {
	if err := b.lab.StartBerth(ctx); err != nil {
		return err
	}
	if err := b.makePool(ctx, "172.30.0.128-172.30.0.254"); err != nil {
		return err
	}
	if err := b.startPods(ctx, nodes); err != nil {
		return err
	}
	var done []answerTrial
	for i := range trials {
		t, err := b.answerTrial(ctx, serviceName(i))
		if err != nil {
			return fmt.Errorf("trial %d: %w", i+1, err)
		}
		b.printf("trial %d: address after %s ms, who has it %s ms, first connection %s ms; connections failed: %d before it was said "+
			"who has it, after that %d lost, %d refused, %d unreachable\n", i+1, ms(t.address), ms(t.answered), ms(t.connected),
			t.failed.before, t.failed.lost, t.failed.refused, t.failed.unreachable)
		done = append(done, t)
	}
	b.printf("load after: %s\n", load())
	b.printAnswers(done)
	return nil
}

// printAnswers prints the figures of the trials.
func (b *Bench) printAnswers(done []answerTrial) {
	var address, answered, connected figures
	var failed failures
	for _, t := range done {
		address, answered, connected = append(address, t.address), append(answered, t.answered), append(connected, t.connected)
		failed.lost += t.failed.lost
		failed.refused += t.failed.refused
		failed.unreachable += t.failed.unreachable
	}
	b.spread("first-answer/address", address)
	b.spread("first-answer/arp", answered)
	b.printf("bench first-answer/lost-after-arp %d count\n", failed.lost)
	b.printf("bench first-answer/refused-after-arp %d count\n", failed.refused)
	b.printf("bench first-answer/unreachable-after-arp %d count\n", failed.unreachable)
	b.printf("bench first-answer/p50 %s ms\n", ms(connected.percentile(median)))
	b.printf("bench first-answer/max %s ms\n", ms(connected.percentile(highest)))
	b.printf("bench first-answer %s ms\n", ms(connected.percentile(rare)))
}

// answerTrial is what one trial of FirstAnswer gave; times are since just before the Service was created.
type answerTrial struct {
	address   time.Duration // until the client saw the address in the Service's status
	answered  time.Duration // until a host said to have it
	connected time.Duration // until the client's first connection was open
	failed    failures
}

// answerTrial creates a Service with an address that no host of the segment has heard of, and connects to it.
func (b *Bench) answerTrial(ctx context.Context, name string) (t answerTrial, err error) {
	services := b.lab.API().CoreV1().Services(namespace)
	begin := time.Now()
	if _, err := services.Create(ctx, newService(name, corev1.ServiceExternalTrafficPolicyCluster), metav1.CreateOptions{}); err != nil {
		return t, fmt.Errorf("make Service %s: %w", name, err)
	}
	var address netip.Addr
	err = until(ctx, func(ctx context.Context) error {
		service, err := services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var ok bool
		if address, ok = addressOf(service); !ok {
			return fmt.Errorf("the Service %s has no address: %v", name, service.Status.Conditions)
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	t.address = time.Since(begin)
	meter := gap.Start(ctx, b.lab.Client().Space(), netip.AddrPortFrom(address, port))
	defer meter.Stop()
	err = until(ctx, func(context.Context) error {
		if _, ok := meter.Record().First(); !ok {
			return fmt.Errorf("no connection to %s was opened", address)
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	record := meter.Stop()
	first, _ := record.First()
	t.connected = first.End.Sub(begin)
	answered := answeredAt(b.lab.Client().Frames(begin), address)
	if answered.IsZero() {
		return t, fmt.Errorf("the client is connected to %s, and no frame said who has it", address)
	}
	t.answered = answered.Sub(begin)
	for _, attempt := range record {
		if attempt.Err != nil {
			t.failed.add(attempt, answered)
		}
	}
	return t, nil
}

// answeredAt is when the first frame came that said who has an address; zero if none did.
func answeredAt(list []frames.Frame, address netip.Addr) time.Time {
	for _, f := range list {
		if !f.Outgoing && f.Subject() == address && (f.Op == frames.Reply || f.Gratuitous()) {
			return f.Time
		}
	}
	return time.Time{}
}
