package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthlb/berth/e2e/lab"
)

const (
	// latencyTrials is how many Services are made one after another to see how long each waits for its address.
	latencyTrials = 200
	// pendingServices wait for a full pool while other Services change otherEvents times.
	pendingServices, otherEvents = 1000, 1000
)

// Restart measures a controller with many Services: the memory it takes, how long one more Service waits for its address,
// what Services cost that wait for a full pool, and how long nobody allocates when the controller is restarted, with what
// it writes to the Services that had their addresses.
func Restart(ctx context.Context, options Options, services int) error {
	return on(ctx, options, 0, func(ctx context.Context, b *Bench) error { return b.restart(ctx, services) })
}

func (b *Bench) restart(ctx context.Context, count int) error {
	if err := b.lab.InstallBerth(ctx); err != nil {
		return err
	}
	if err := b.makePool(ctx, "10.200.0.0/16"); err != nil {
		return err
	}
	if err := b.makeServices(ctx, count, corev1.ServiceExternalTrafficPolicyCluster); err != nil {
		return err
	}
	begin := time.Now()
	if err := b.lab.StartController(ctx, controllerName, lab.Extra{}); err != nil {
		return err
	}
	if _, err := b.awaitQuiet(ctx, begin, count); err != nil {
		return err
	}
	for _, step := range []func(context.Context, int) error{b.measureMemory, b.measureLatency, b.measurePending, b.measureRestarts} {
		if err := step(ctx, count); err != nil {
			return err
		}
	}
	b.printf("load after: %s\n", load())
	return nil
}

func (b *Bench) measureMemory(_ context.Context, count int) error {
	process, err := b.lab.ControllerProcess(controllerName)
	if err != nil {
		return err
	}
	used, err := processes{process.Pid()}.memory()
	if err != nil {
		return err
	}
	b.printf("bench restart/memory-at-%d-services %.1f MB\n", count, used)
	return nil
}

// measureLatency makes Services one after another and measures, as a client sees it, how long each has no address.
func (b *Bench) measureLatency(ctx context.Context, _ int) error {
	services := b.lab.API().CoreV1().Services(namespace)
	var waits figures
	for i := range latencyTrials {
		name := fmt.Sprintf("one-more-%d", i)
		seen, err := services.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			return fmt.Errorf("watch Service %s: %w", name, err)
		}
		begin := time.Now()
		if _, err := services.Create(ctx, newService(name, corev1.ServiceExternalTrafficPolicyCluster), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make Service %s: %w", name, err)
		}
		if err := awaitAddress(ctx, seen); err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
		waits = append(waits, time.Since(begin))
	}
	b.spread("restart/create-to-address", waits)
	b.printf("bench restart/create-to-address/p99 %s ms\n", ms(waits.percentile(99)))
	return nil
}

// awaitAddress reads a watch until the Service has an address.
func awaitAddress(ctx context.Context, seen watch.Interface) error {
	defer seen.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("no address after %s", patience)
		case event, open := <-seen.ResultChan():
			if !open {
				return errors.New("the watch ended")
			}
			if service, ok := event.Object.(*corev1.Service); ok && len(service.Status.LoadBalancer.Ingress) > 0 {
				return nil
			}
		}
	}
}

// measurePending compares what changes of one Service cost the controller without and with many Services that wait for a
// pool that stays full.
func (b *Bench) measurePending(ctx context.Context, _ int) error {
	alone, err := b.costOfOthers(ctx)
	if err != nil {
		return err
	}
	if err := b.fillPool(ctx); err != nil {
		return err
	}
	crowded, err := b.costOfOthers(ctx)
	if err != nil {
		return err
	}
	b.printf("bench restart/event-without-pending %.1f µs\n", perEvent(alone))
	b.printf("bench restart/event-with-%d-pending %.1f µs ratio %.2f\n", pendingServices, perEvent(crowded), ratio(crowded, alone))
	return nil
}

func perEvent(cost time.Duration) float64 { return float64(cost.Microseconds()) / otherEvents }

// fillPool makes a pool of one address and Services that all ask for it.
func (b *Bench) fillPool(ctx context.Context) error {
	manifest := "apiVersion: berth.dev/v1beta1\nkind: IPAddressPool\nmetadata: {name: full}\nspec: {addresses: [10.201.0.1], autoAssign: false}\n"
	call := lab.KubectlCall{Kubeconfig: b.lab.Kubeconfig("admin"), Stdin: []byte(manifest)}
	if _, stderr, err := b.lab.Kubectl(ctx, call, "apply", "--server-side", "-f", "-"); err != nil {
		return fmt.Errorf("make the full pool: %w: %s", err, strings.TrimSpace(stderr))
	}
	begin := time.Now()
	for i := range pendingServices {
		service := newService(serviceName(1_000_000+i), corev1.ServiceExternalTrafficPolicyCluster)
		service.Annotations = map[string]string{"berth.dev/pool": "full"}
		if _, err := b.lab.API().CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make a Service that has to wait: %w", err)
		}
	}
	_, err := b.awaitQuiet(ctx, begin, pendingServices)
	return err
}

// costOfOthers is the time that the controller's process runs while a Service that has its address changes many times.
func (b *Bench) costOfOthers(ctx context.Context) (time.Duration, error) {
	process, err := b.lab.ControllerProcess(controllerName)
	if err != nil {
		return 0, err
	}
	before, err := processes{process.Pid()}.times()
	if err != nil {
		return 0, err
	}
	for i := range otherEvents {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"turn":"%d"}}}`, i)
		if _, err := b.lab.API().CoreV1().Services(namespace).Patch(ctx, serviceName(0), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return 0, fmt.Errorf("change a Service: %w", err)
		}
	}
	after, err := processes{process.Pid()}.times()
	if err != nil {
		return 0, err
	}
	return after[0] - before[0], nil
}

// measureRestarts stops the controller, makes a Service, starts the controller and measures how long that waits.
func (b *Bench) measureRestarts(ctx context.Context, _ int) error {
	var longest time.Duration
	for i, how := range []struct {
		name string
		stop func(context.Context) error
	}{{"term", b.stopController}, {"kill", b.killController}} {
		begin := time.Now()
		if err := how.stop(ctx); err != nil {
			return err
		}
		stopped := time.Since(begin)
		fresh := serviceName(2_000_000 + i)
		late := newService(fresh, corev1.ServiceExternalTrafficPolicyCluster)
		if _, err := b.lab.API().CoreV1().Services(namespace).Create(ctx, late, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make a Service while no controller runs: %w", err)
		}
		started := time.Now()
		if err := b.lab.StartController(ctx, controllerName, lab.Extra{NoWait: true}); err != nil {
			return err
		}
		writes, err := b.awaitQuiet(ctx, begin, 1)
		if err != nil {
			return err
		}
		a, others := account(writes, started), 0
		for _, w := range writes {
			if w.Name != fresh && w.Resource == "services/status" {
				others++
			}
		}
		b.printf("trial %s: stopped after %s ms\n", how.name, ms(stopped))
		b.printf("bench restart/writes-to-others-after-%s %d count\n", how.name, others)
		b.printf("bench restart/after-%s %s ms\n", how.name, ms(a.first))
		longest = max(longest, a.first)
	}
	b.printf("bench restart %s ms\n", ms(longest))
	return nil
}

// killController kills the controller, which keeps the Lease until it runs out.
func (b *Bench) killController(context.Context) error {
	process, err := b.lab.ControllerProcess(controllerName)
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return fmt.Errorf("kill the controller: %w", err)
	}
	<-process.Done()
	return nil
}
