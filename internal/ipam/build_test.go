package ipam_test

import (
	"net/netip"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/ipam"
	"github.com/berthlb/berth/internal/reason"
)

// epoch is when the oldest object of a test was made.
func epoch() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// pool is a pool of these addresses: prefixes, ranges FIRST-LAST and single addresses.
func pool(name string, addresses ...string) *cluster.Pool {
	var set netipx.IPSetBuilder
	for _, text := range addresses {
		set.AddRange(parseRange(text))
	}
	united, err := set.IPSet()
	if err != nil {
		panic(err)
	}
	return &cluster.Pool{Name: name, UID: name, Created: epoch(), AutoAssign: true, Ranges: united.Ranges()}
}

func parseRange(text string) netipx.IPRange {
	if strings.Contains(text, "-") {
		return netipx.MustParseIPRange(text)
	}
	if strings.Contains(text, "/") {
		return netipx.RangeOfPrefix(netip.MustParsePrefix(text))
	}
	return netipx.IPRangeFrom(addr(text), addr(text))
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, addr(text))
	}
	return list
}

// service is a Service of ours in namespace shop that wants one IPv4 address. age orders Services: the lower the older.
func service(name string, age int, edits ...func(*cluster.Service)) *cluster.Service {
	s := &cluster.Service{
		Name: cluster.Name{Namespace: "shop", Name: name}, UID: name, Created: epoch().Add(time.Duration(age) * time.Second),
		Ours: true, Families: []cluster.Family{cluster.IPv4}, FamilyPolicy: cluster.SingleStack,
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func asks(addresses ...string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Request = addrs(addresses...) }
}

func asksPool(name string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.RequestPool = name }
}

func families(policy cluster.FamilyPolicy, list ...cluster.Family) func(*cluster.Service) {
	return func(s *cluster.Service) { s.FamilyPolicy, s.Families = policy, list }
}

// holding gives a Service the record that Berth writes: pool and address, in turn.
func holding(pairs ...string) func(*cluster.Service) {
	return func(s *cluster.Service) {
		s.Recorded = cluster.Record{ByUs: true, Since: s.Created}
		for i := 0; i < len(pairs); i += 2 {
			s.Recorded.Pools = append(s.Recorded.Pools, pairs[i])
			s.Recorded.Named = append(s.Recorded.Named, addr(pairs[i+1]))
		}
		s.Recorded.Addresses = s.Recorded.Named
	}
}

// found gives a Service a status that holds these addresses and no record of ours.
func found(addresses ...string) func(*cluster.Service) {
	return func(s *cluster.Service) { s.Recorded = cluster.Record{Addresses: addrs(addresses...)} }
}

// bench is a ledger with the API server played in memory: each answer is written at once, and what is freed is decided
// about next, oldest first.
type bench struct {
	*ipam.Ledger
	picture  ipam.Cluster
	services map[cluster.Name]*cluster.Service
	writes   []string // names of Services whose status changed, in order
}

func newBench(pools ...*cluster.Pool) *bench {
	b := &bench{Ledger: ipam.NewLedger(), services: map[cluster.Name]*cluster.Service{}}
	b.picture.Pools = pools
	b.SetCluster(b.picture)
	return b
}

// start adopts all Services, as if they came in this order, and decides about all of them.
func (b *bench) start(services ...*cluster.Service) {
	b.Adopt(services)
	for _, s := range services {
		b.services[s.Name] = s
	}
	b.drain(b.Plan())
}

// put takes Services in that are new or changed, one after the other.
func (b *bench) put(services ...*cluster.Service) {
	for _, s := range services {
		if before := b.services[s.Name]; before != nil && before.UID == s.UID && len(s.Recorded.Addresses) == 0 {
			s.Recorded = before.Recorded
		}
		b.services[s.Name] = s
		b.drain([]cluster.Name{s.Name})
	}
}

// change edits a Service.
func (b *bench) change(name string, edits ...func(*cluster.Service)) {
	edited := *b.services[cluster.Name{Namespace: "shop", Name: name}]
	for _, edit := range edits {
		edit(&edited)
	}
	b.put(&edited)
}

// remove deletes Services.
func (b *bench) remove(names ...string) {
	for _, name := range names {
		full := cluster.Name{Namespace: "shop", Name: name}
		delete(b.services, full)
		b.drain(b.Release(full))
	}
}

// setCluster changes the picture.
func (b *bench) setCluster(edit func(*ipam.Cluster)) {
	edit(&b.picture)
	b.SetCluster(b.picture)
	b.drain(b.Plan())
}

// setPools replaces all pools.
func (b *bench) setPools(pools ...*cluster.Pool) {
	b.setCluster(func(c *ipam.Cluster) { c.Pools = pools })
}

// drain decides about Services, and about those that are woken by it, until none is left.
func (b *bench) drain(due []cluster.Name) {
	for len(due) > 0 {
		oldest := 0
		for i := range due {
			if b.older(due[i], due[oldest]) {
				oldest = i
			}
		}
		name := due[oldest]
		due = append(due[:oldest:oldest], due[oldest+1:]...)
		if s := b.services[name]; s != nil {
			decision := b.Decide(s)
			due = append(due, b.Hold(s, decision)...)
			due = append(due, b.write(s, decision)...)
			due = append(due, b.Settle(name, ipam.Written)...)
		}
	}
}

func (b *bench) older(x, y cluster.Name) bool {
	s, t := b.services[x], b.services[y]
	if s == nil || t == nil {
		return t != nil
	}
	if !s.Created.Equal(t.Created) {
		return s.Created.Before(t.Created)
	}
	return s.Name.Compare(t.Name) < 0
}

// write is the API server: the status becomes what was decided, and who watches is told if that is something new.
func (b *bench) write(s *cluster.Service, decision ipam.Decision) (told []cluster.Name) {
	written := *s
	written.Recorded = recordOf(s, decision)
	if !sameStatus(s.Recorded.Addresses, written.Recorded.Addresses) {
		b.writes = append(b.writes, s.Name.Name)
	}
	if cmp.Equal(s.Recorded, written.Recorded, cmpopts.EquateEmpty(), compareAddr()) {
		return nil
	}
	b.services[s.Name] = &written
	return []cluster.Name{s.Name}
}

// recordOf is what compile reads back from the status after the decision was written.
func recordOf(s *cluster.Service, decision ipam.Decision) cluster.Record {
	switch decision.Verdict {
	case ipam.Leave:
		return s.Recorded
	case ipam.Clear:
		return cluster.Record{}
	case ipam.Foreign:
		return cluster.Record{ByUs: true, Addresses: s.Recorded.Addresses, Since: epoch(), Renumbered: decision.Renumbered}
	default:
		return cluster.Record{
			ByUs: true, Addresses: decision.Addresses, Named: decision.Addresses, Pools: decision.Pools, Since: epoch(),
			Renumbered: decision.Renumbered,
		}
	}
}

func sameStatus(a, b []netip.Addr) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// status is what the Services hold: name → addresses in words.
func (b *bench) status() map[string]string {
	all := map[string]string{}
	for name, s := range b.services {
		var texts []string
		for _, address := range s.Recorded.Addresses {
			texts = append(texts, address.String())
		}
		all[name.Name] = strings.Join(texts, " ")
	}
	return all
}

// why is the reason a Service has now.
func (b *bench) why(name string) reason.Reason {
	return b.Decide(b.services[cluster.Name{Namespace: "shop", Name: name}]).Reason
}

// usage counts a pool's addresses.
func usage(tb interface {
	Helper()
	Fatalf(format string, args ...any)
}, ledger *ipam.Ledger, name string) ipam.Usage {
	tb.Helper()
	counted, known := ledger.Usage(name)
	if !known {
		tb.Fatalf("no pool %s", name)
	}
	return counted
}
