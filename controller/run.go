package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/berthlb/berth/controller/internal/announced"
	"github.com/berthlb/berth/controller/internal/assign"
	"github.com/berthlb/berth/controller/internal/poolstatus"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/kube"
)

// The lease (rule A12): the next leader begins at most six seconds after this one was last heard of, and this one ends
// two seconds before that.
const (
	leaseDuration = 6 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
	shutdownGrace = 5 * time.Second // for writes under way, which take two seconds at most
)

// run is the controller's life, until ctx ends or the lease is lost.
func run(ctx context.Context, options *flags, log logr.Logger) error {
	config, err := restConfig(options.kubeconfig)
	if err != nil {
		return err
	}
	health, err := newHealth(ctx, options.listen)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return health.serve(ctx) })
	group.Go(func() error { return live(ctx, config, options, health, log) })
	return group.Wait()
}

// restConfig is how to reach the API server. The number of requests is bounded where they are made, and the API server
// defends itself: a limit in the client would only make Services wait.
func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig == "" {
		if config, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("find the API server (outside a pod set --kubeconfig): %w", err)
		}
	} else if config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("read --kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	config.UserAgent = "berth-controller/" + version
	return config, nil
}

// live checks what is needed, makes the parts, and runs them.
func live(ctx context.Context, config *rest.Config, options *flags, health *health, log logr.Logger) error {
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	clientset, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	serviceCIDRs, err := preflight(ctx, clientset, options, log)
	if err != nil {
		return err
	}
	lease, err := newLease(config, options)
	if err != nil {
		return err
	}
	runs, err := newManager(config, lease, log)
	if err != nil {
		return err
	}
	parts := &parts{options: options, clientset: clientset, manager: runs, lease: lease, serviceCIDRs: serviceCIDRs, health: health, log: log}
	if err := parts.assemble(ctx); err != nil {
		return err
	}
	log.Info("controller starts", "version", version, "namespace", options.namespace, "lease", options.leaseName, "identity", lease.Identity(),
		"loadBalancerClass", options.loadBalancerClass, "default", options.defaultClass, "listen", options.listen, "serviceCIDRs", serviceCIDRs)
	if err := runs.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// newLease is the lock of the leader election.
func newLease(config *rest.Config, options *flags) (*kube.Lease, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read the host's name: %w", err)
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, options.namespace, options.leaseName,
		resourcelock.ResourceLockConfig{Identity: hostname + "_" + rand.Text()}, config, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("make the lock of Lease %s: %w", options.leaseName, err)
	}
	return kube.NewLease(lock, leaseDuration, time.Now), nil
}

// newManager runs what runs always, and what runs on the leader only.
func newManager(config *rest.Config, lease *kube.Lease, log logr.Logger) (manager.Manager, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	duration, deadline, retry, grace := leaseDuration, renewDeadline, retryPeriod, shutdownGrace
	runs, err := manager.New(config, manager.Options{
		Scheme:                              scheme,
		Cache:                               kube.CacheOptions(scheme),
		Logger:                              log.WithSink(stopSink{log.GetSink()}),
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lease,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &duration,
		RenewDeadline:                       &deadline,
		RetryPeriod:                         &retry,
		GracefulShutdownTimeout:             &grace,
		Metrics:                             metricsserver.Options{BindAddress: "0"}, // ours has health beside it
		HealthProbeBindAddress:              "0",
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return runs, nil
}

// parts are what the process is made of.
type parts struct {
	options      *flags
	clientset    kubernetes.Interface
	manager      manager.Manager
	lease        *kube.Lease
	serviceCIDRs bool
	health       *health
	log          logr.Logger
}

// assemble wires the parts together.
func (p *parts) assemble(ctx context.Context) error {
	registry := p.health.registry
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	dropped := prometheus.NewCounter(prometheus.CounterOpts{Name: "berth_controller_events_dropped_total", Help: "Events that could not be written."})
	registry.MustRegister(dropped)
	events := kube.NewRecorder(p.clientset.EventsV1(), p.lease.Identity(), p.log, dropped.Inc)
	services := kube.NewServiceWriter(p.clientset.CoreV1(), p.lease.Permit, time.Now)

	var pools *poolstatus.Reporter
	assigner := assign.New(assign.Options{
		Class: p.options.class(), Informers: p.manager.GetCache(), ServiceCIDRs: p.serviceCIDRs, Services: kube.NewServiceReader(p.clientset.CoreV1()),
		Pools:  kube.NewPoolReader(p.manager.GetAPIReader()),
		Writer: services, Events: events, Metrics: assign.NewMetrics(registry), Log: p.log, Changed: func() { pools.Wake() },
	})
	pools = poolstatus.New(poolstatus.Options{
		Reader: p.manager.GetCache(), Allocator: assigner, Writer: kube.NewObjectWriter(p.manager.GetClient(), p.lease.Permit),
		Events: events, Metrics: poolstatus.NewMetrics(registry), Log: p.log, Now: time.Now,
	})
	store := compile.NewStore(p.options.class())
	reporter := announced.New(store, &announcedWriter{reader: p.manager.GetCache(), writer: services, events: events}, time.Now, p.log)
	feed := &feed{store: store, announced: reporter, pools: pools.Wake, serviceCIDRs: p.serviceCIDRs}
	synced, err := feed.watch(ctx, p.manager.GetCache())
	if err != nil {
		return err
	}
	return p.add(
		events,
		always(func(context.Context) error { p.health.synced.Store(true); return nil }),
		assigner,
		pools,
		manager.RunnableFunc(func(ctx context.Context) error {
			if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
				return nil // the end came first
			}
			return reporter.Run(ctx)
		}),
		manager.RunnableFunc(p.gossipSecret),
	)
}

// add has the manager run the parts. Without a word of their own they run on the leader only.
func (p *parts) add(runnables ...manager.Runnable) error {
	for _, runnable := range runnables {
		if err := p.manager.Add(runnable); err != nil {
			return fmt.Errorf("add %T: %w", runnable, err)
		}
	}
	return nil
}

// always is a part that runs on every controller, once the caches are synced.
type always func(context.Context) error

// Start runs it.
func (a always) Start(ctx context.Context) error { return a(ctx) }

// NeedLeaderElection is false.
func (a always) NeedLeaderElection() bool { return false }

// gossipSecret makes the speakers' key if there is none, however long the API server refuses.
func (p *parts) gossipSecret(ctx context.Context) error {
	said := ""
	for {
		made, err := kube.EnsureGossipSecret(ctx, p.clientset.CoreV1().Secrets(p.options.namespace))
		if err == nil {
			if made {
				p.log.Info("made the gossip key of the speakers", "secret", kube.GossipSecret)
			}
			return nil
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			p.log.Error(err, "the gossip key cannot be made, trying again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryPeriod):
		}
	}
}
