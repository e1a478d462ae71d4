package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/kube"
	"github.com/berthlb/berth/speaker/internal/agent"
	"github.com/berthlb/berth/speaker/internal/gossip"
	"github.com/berthlb/berth/speaker/internal/l2"
	"github.com/berthlb/berth/speaker/internal/proxy"
	"github.com/berthlb/berth/speaker/internal/report"
	"github.com/berthlb/berth/speaker/internal/watch"
	"github.com/berthlb/berth/speaker/internal/wire"
)

// joinGrace is how long a speaker that has just started waits for the others it knows of before it decides alone.
const joinGrace = 2 * time.Second

// proxyGrace is how long a speaker that is back waits for its proxy's word, before it says that it has none.
const proxyGrace = 4 * time.Second

// speaker is the process: every part, wired together.
type speaker struct {
	options *flags
	log     logr.Logger
	boot    string

	client    client.Client
	informers cache.Cache
	store     *compile.Store
	directory *directory
	registry  *prometheus.Registry

	fresh     *agent.Freshness
	settling  *agent.Settling
	links     *wire.Links
	responder *l2.Responder
	watcher   *proxy.Watcher
	gate      *proxy.Gate
	ring      *gossip.Ring
	watch     *watch.Watch
	facts     *facts
	loop      *agent.Agent
	reporter  *report.Reporter

	turn       turn        // held from when it is taken to the end of the process
	waiting    atomic.Bool // another speaker of this node has the turn
	identified atomic.Bool // what is needed for the turn is known

	synced  atomic.Bool
	joined  atomic.Bool
	denied  atomic.Bool // a raw socket was refused: no NET_RAW, which cannot change while the process runs
	members atomic.Int64

	ready      metav1.ConditionStatus // as last reported; owned by the loop
	readySince metav1.Time
}

// run is the speaker's life: from the API server's answer to the end of ctx.
func run(ctx context.Context, options *flags, log logr.Logger) error {
	config, err := restConfig(options.kubeconfig)
	if err != nil {
		return err
	}
	s := &speaker{options: options, log: log, directory: newDirectory(), registry: prometheus.NewRegistry(), fresh: agent.NewFreshness()}
	s.store = compile.NewStore(options.compile())
	s.settling = agent.NewSettling(s.store.FailbackDelays)
	if s.boot, err = bootID(); err != nil {
		return err
	}
	held, err := takeTurn(ctx, turnName(options.node, options.gossipPort))
	s.waiting.Store(errors.Is(err, errTaken))
	if err != nil && !s.waiting.Load() {
		return err
	}
	s.turn = held
	group, ctx := errgroup.WithContext(ctx)
	if err := s.serveHealth(ctx, group); err != nil {
		return err
	}
	group.Go(func() error { return s.live(ctx, group, config) })
	if err := group.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// live makes the parts in the order in which they can be, and starts them.
func (s *speaker) live(ctx context.Context, group *errgroup.Group, config *rest.Config) error {
	if err := s.connect(config); err != nil {
		return err
	}
	id, err := identify(ctx, s.client, s.options, s.log)
	if err != nil {
		return err
	}
	if err := s.replace(ctx, group); err != nil {
		return err
	}
	if err := s.assemble(id); err != nil {
		return err
	}
	feed := &feed{store: s.store, directory: s.directory, heard: s.fresh.Heard, wake: s.loop.Wake, wakeNow: s.loop.WakeNow}
	if err := feed.watch(ctx, s.informers); err != nil {
		return err
	}
	s.log.Info("speaker starts", "version", version, "node", s.options.node, "gossip", s.ring.Address().String(),
		"loadBalancerClass", s.options.loadBalancerClass, "default", s.options.defaultClass, "listen", s.options.listen)
	s.start(ctx, group)
	return nil
}

// replace waits for the turn, if another speaker of this node has it. By now this one has shown that it reaches the API
// server and may read what it needs, so that it says it is ready, upon which Kubernetes ends the other.
func (s *speaker) replace(ctx context.Context, group *errgroup.Group) error {
	if !s.waiting.Load() {
		return nil
	}
	s.log.Info("waiting for the speaker that this one replaces")
	s.identified.Store(true)
	var err error
	if s.turn, err = awaitTurn(ctx, turnName(s.options.node, s.options.gossipPort)); err != nil {
		return err
	}
	s.waiting.Store(false)
	return s.servePort(ctx, group)
}

// connect makes the client and the informers.
func (s *speaker) connect(config *rest.Config) error {
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	if s.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if s.informers, err = cache.New(config, kube.CacheOptions(scheme)); err != nil {
		return fmt.Errorf("make informers: %w", err)
	}
	return nil
}

// assemble makes the parts that depend on who this speaker is.
func (s *speaker) assemble(id identity) error {
	var err error
	s.denied.Store(errors.Is(wire.MayOpen(), os.ErrPermission))
	s.links = wire.NewLinks(s.options.exclude, s.log)
	s.responder = l2.New(l2.Options{Links: s.links, Open: s.open, Metrics: s.registry, Log: s.log})
	kubeProxy := proxy.Options{Livez: s.options.proxyHealth, Metrics: s.options.proxyMetrics, NodeAddresses: id.addresses, Log: s.log}
	s.watcher = proxy.NewWatcher(kubeProxy)
	s.gate = proxy.NewGate(kubeProxy)
	s.watch = watch.New(watch.Options{
		Node:    s.options.node,
		Members: func() map[string]*cluster.Member { return s.facts.members() },
		Beat:    func(to []string) { s.ring.SendBeat(to) },
		Down:    func(node string) { s.ring.Down(node) },
		Open: func(link cluster.Link, family cluster.Family) (watch.Socket, error) {
			if family == cluster.IPv6 {
				return wire.OpenNDP(link)
			}
			return wire.OpenARP(link)
		},
		Metrics: s.registry, Log: s.log.WithName("watch"),
	})
	s.ring, err = gossip.New(gossip.Options{
		Node: s.options.node, Bind: netip.AddrPortFrom(id.address, s.options.gossipPort), Keys: id.keys, Label: id.label,
		Known: s.directory.known, Allowed: s.directory.allowed, Beat: s.watch.Heard,
		Leaving: s.leaving,
		Log:     s.log,
	})
	if err != nil {
		return err
	}
	s.registerMembers()
	s.facts = &facts{
		node: s.options.node, ring: s.ring, links: s.links, denied: s.denied.Load, proxy: s.watcher, fresh: s.fresh, settling: s.settling,
		directory: s.directory, gateways: &gateways{list: wire.Gateways, log: s.log},
	}
	s.reporter = report.New(&kube.SpeakerWriter{Client: s.client, Node: s.options.node}, s.log)
	s.loop = agent.New(agent.Options{
		Node: s.options.node, Store: s.store, Facts: s.facts.now, Now: time.Now, Ready: s.mayAnnounce,
		Announcer: s.responder, Gate: gate{s.gate}, Report: s.report, Log: s.log,
	})
	return nil
}

// open opens a link's raw socket for a family. Where that is not allowed the others are told, so that one of them answers.
func (s *speaker) open(link cluster.Link, family cluster.Family) (l2.Socket, error) {
	socket, err := openSocket(link, family)
	if errors.Is(err, os.ErrPermission) && !s.denied.Swap(true) {
		s.facts.tell()
		s.loop.WakeNow()
	}
	return socket, err
}

// openSocket opens a socket of the protocol that is for the family.
func openSocket(link cluster.Link, family cluster.Family) (l2.Socket, error) {
	if family == cluster.IPv6 {
		return wire.OpenNDP(link)
	}
	return wire.OpenARP(link)
}

// start starts the parts. The first that fails ends all of them.
func (s *speaker) start(ctx context.Context, group *errgroup.Group) {
	changed := func() { s.facts.tell(); s.loop.Wake() }
	group.Go(func() error { return s.informers.Start(ctx) })
	group.Go(func() error {
		return s.links.Run(ctx, func() { s.responder.LinksChanged(); s.facts.tell(); s.watch.Changed(); s.loop.WakeNow() })
	})
	group.Go(func() error { return s.responder.Run(ctx) })
	group.Go(func() error { return s.watcher.Run(ctx, changed) })
	group.Go(func() error { return s.gate.Run(ctx, s.loop.Wake) })
	group.Go(func() error { return s.ring.Run(ctx, s.gossiped) })
	if s.options.fastDetection {
		group.Go(func() error { return s.watch.Run(ctx) })
	}
	group.Go(func() error { return s.fresh.Run(ctx, s.ask, changed) })
	group.Go(func() error { return s.settling.Run(ctx, changed) })
	group.Go(func() error { return s.reporter.Run(ctx) })
	group.Go(func() error { return s.loop.Run(ctx) })
	group.Go(func() error { return s.settle(ctx) })
}

// settle waits until the picture is complete: caches synced, links listed, the other speakers met (rule P6).
func (s *speaker) settle(ctx context.Context) error {
	if !s.informers.WaitForCacheSync(ctx) {
		return nil // the context has ended
	}
	s.synced.Store(true)
	select {
	case <-ctx.Done():
		return nil
	case <-s.links.Listed():
	}
	grace, cancel := context.WithTimeout(ctx, joinGrace)
	defer cancel()
	// Until it speaks the others hold what it said before it was restarted. So it speaks when it can do what it did then.
	s.await(grace, func() bool { return s.ring.Met() || len(s.directory.known()) <= 1 })
	if s.ring.Returned() != nil {
		proxied, cancel := context.WithTimeout(ctx, proxyGrace)
		defer cancel()
		s.await(proxied, s.watcher.Up)
	}
	s.facts.tell()
	s.ring.Speak()
	s.await(grace, s.metAll)
	s.settling.Begin(s.others(), s.ring.Returned())
	s.facts.tell()
	s.joined.Store(true)
	s.loop.Wake()
	return nil
}

// leaving is true if this node leaves, so that its speaker will not be back (rule E6).
func (s *speaker) leaving() bool {
	if !s.synced.Load() {
		return false
	}
	for _, node := range s.store.Snapshot(cluster.Facts{}, time.Now()).Nodes {
		if node.Name == s.options.node {
			return node.Leaving != nil
		}
	}
	return true // its Node is gone
}

// await waits until something holds, or the context ends.
func (s *speaker) await(ctx context.Context, holds func() bool) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// others are the speakers alive but for this one.
func (s *speaker) others() map[string]*cluster.Member {
	members := s.ring.Members()
	delete(members, s.options.node)
	return members
}

func (s *speaker) metAll() bool {
	members := s.ring.Members()
	for name := range s.directory.known() {
		if members[name] == nil {
			return false
		}
	}
	return true
}

// mayAnnounce is false until the picture is complete, and after a pause of this process until it has caught up.
func (s *speaker) mayAnnounce() bool { return s.joined.Load() && s.ring.InTouch() }

// gossiped is woken by gossip: a death is decided at once, the rest in the loop's own pace.
func (s *speaker) gossiped() {
	s.watch.Changed()
	now := int64(len(s.ring.Members()))
	if before := s.members.Swap(now); now < before {
		s.loop.WakeNow()
		return
	}
	s.loop.Wake()
}

// ask asks the API server for what is cheap: this node's own Node (rule E9).
func (s *speaker) ask(ctx context.Context) error {
	if err := s.client.Get(ctx, types.NamespacedName{Name: s.options.node}, &corev1.Node{}); err != nil {
		return fmt.Errorf("read Node %s: %w", s.options.node, err)
	}
	return nil
}

// gate adapts the proxy's gate to the loop's words.
type gate struct{ *proxy.Gate }

// Update says what may be announced.
func (g gate) Update(items []agent.Item) {
	list := make([]proxy.Item, 0, len(items))
	for _, item := range items {
		list = append(list, proxy.Item(item))
	}
	g.Gate.Update(list)
}

// sortedNames are the keys of members, sorted.
func sortedNames(members map[string]*cluster.Member) []string {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
