// Package announced writes the condition berth.dev/Announced of Services: who answers for their addresses, or why nobody
// does. It decides over the API objects with announce.Decide, as the speakers do, with the facts the speakers publish in
// their objects; so it has an answer also where nobody announces, or no speaker exists.
package announced

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/announce"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/internal/reason"
)

// The pace of the writer.
const (
	settle      = time.Second            // after the first wake, so that one death is one write per Service
	perSecond   = 50                     // writes at most
	pause       = 100 * time.Millisecond // after so many, for the cache to show them
	recheck     = 10 * time.Second       // for what changes by the clock alone
	share       = 10                     // of the time, one part at most is spent on deciding
	unconfirmed = time.Minute            // how long a speaker may contradict the decision
)

// Condition is what the condition says of one Service.
type Condition struct {
	Service cluster.Name
	UID     string
	True    bool
	Why     *reason.Reason
}

// Writer reads and writes the condition.
type Writer interface {
	// Recorded is the condition that the Service has now; false if it has none, or there is no such Service.
	Recorded(name cluster.Name) (Condition, bool)
	// WriteAnnounced writes the condition, and an event where it changes.
	WriteAnnounced(ctx context.Context, condition Condition) error
}

// Reporter decides and writes. The methods that take objects in may be called from several goroutines.
type Reporter struct {
	store  *compile.Store
	writer Writer
	now    func() time.Time
	log    logr.Logger
	wake   chan struct{} // of one

	mu       sync.Mutex // guards speakers
	speakers map[string]*v1beta1.Speaker

	contradicted map[netip.Addr]time.Time // since when the owner does not list the address; owned by Run
}

// New makes a reporter over a store that somebody else fills.
func New(store *compile.Store, writer Writer, now func() time.Time, log logr.Logger) *Reporter {
	return &Reporter{
		store: store, writer: writer, now: now, log: log,
		wake:         make(chan struct{}, 1),
		speakers:     map[string]*v1beta1.Speaker{},
		contradicted: map[netip.Addr]time.Time{},
	}
}

// Wake says that something in the store changed.
func (r *Reporter) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // raised already
	}
}

// SetSpeaker takes a Speaker object in.
func (r *Reporter) SetSpeaker(object *v1beta1.Speaker) {
	r.mu.Lock()
	r.speakers[object.Name] = object
	r.mu.Unlock()
	r.Wake()
}

// DeleteSpeaker forgets a Speaker object.
func (r *Reporter) DeleteSpeaker(name string) {
	r.mu.Lock()
	delete(r.speakers, name)
	r.mu.Unlock()
	r.Wake()
}

// Run writes conditions until the context ends. It is to run only on the leader, after the caches are synced.
func (r *Reporter) Run(ctx context.Context) error {
	limiter := rate.NewLimiter(perSecond, 1)
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	for {
		r.sweep(ctx, limiter)
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-ticker.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
	}
}

// sweep writes until every condition is as it should be. With many to write it would be long ago that the last was decided,
// and what is new would wait for all of them: so it decides anew after each second's worth. What could not be written is
// left to the next sweep, so that it keeps nobody waiting.
func (r *Reporter) sweep(ctx context.Context, limiter *rate.Limiter) {
	failed := map[cluster.Name]bool{}
	for {
		begun := r.now()
		due := slices.DeleteFunc(r.changes(), func(c Condition) bool { return failed[c.Service] })
		batch := min(len(due), max(perSecond, int(share*perSecond*r.now().Sub(begun).Seconds())))
		for _, condition := range due[:batch] {
			if limiter.Wait(ctx) != nil {
				return
			}
			if err := r.writer.WriteAnnounced(ctx, condition); err != nil && ctx.Err() == nil {
				failed[condition.Service] = true
				r.log.V(1).Info("condition not written, will be decided again", "service", condition.Service.String(), "error", err.Error())
				r.Wake()
			}
		}
		if batch == len(due) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// changes are the conditions that differ from what is recorded, first-time ones first.
func (r *Reporter) changes() []Condition {
	r.mu.Lock()
	speakers := maps.Clone(r.speakers)
	r.mu.Unlock()
	snapshot := r.store.Snapshot(factsFrom(speakers), r.now())
	table := announce.Decide(snapshot)
	denied := r.denied(table, speakers)
	var first, later []Condition
	for _, service := range snapshot.Services {
		if !service.Ours || !service.Recorded.ByUs {
			// What has no condition berth.dev/Allocated is not managed, or not yet: without pools nothing is touched (fault F06).
			continue
		}
		condition := decide(table, service, denied)
		recorded, has := r.writer.Recorded(service.Name)
		switch {
		case !has && condition.Why.Word == reason.NoAddress:
			// Its condition berth.dev/Allocated says why; one write is enough.
		case !has:
			first = append(first, condition)
		case recorded.True != condition.True || !recorded.Why.Equal(condition.Why):
			later = append(later, condition)
		}
	}
	return slices.Concat(first, later)
}

// decide is the condition of one Service.
func decide(table *announce.Table, service *cluster.Service, denied map[netip.Addr]string) Condition {
	condition := Condition{Service: service.Name, UID: service.UID}
	condition.True, condition.Why = table.Announced(service)
	for _, address := range service.Recorded.Addresses {
		if owner, contradicted := denied[address]; condition.True && contradicted {
			condition.True = false
			condition.Why = reason.New(reason.NotConfirmed, "node %s should answer for %s and has not reported that it does", owner, address)
		}
	}
	return condition
}

// denied are the addresses whose owner has not listed them for a minute, with that owner.
func (r *Reporter) denied(table *announce.Table, speakers map[string]*v1beta1.Speaker) map[netip.Addr]string {
	lists := map[string]map[string]bool{}
	denied := map[netip.Addr]string{}
	still := map[netip.Addr]time.Time{}
	for _, verdict := range table.Verdicts() {
		speaker := speakers[verdict.Owner]
		if speaker == nil || int(speaker.Status.L2AddressCount) > len(speaker.Status.L2Addresses) {
			continue // nobody owns it, or the list is cut and proves nothing
		}
		if lists[verdict.Owner] == nil {
			lists[verdict.Owner] = setOf(speaker.Status.L2Addresses)
		}
		if lists[verdict.Owner][verdict.Address.String()] {
			continue
		}
		since, known := r.contradicted[verdict.Address]
		if !known {
			since = r.now()
		}
		still[verdict.Address] = since
		if r.now().Sub(since) >= unconfirmed {
			denied[verdict.Address] = verdict.Owner
		}
	}
	r.contradicted = still
	return denied
}

func setOf(texts []string) map[string]bool {
	set := make(map[string]bool, len(texts))
	for _, text := range texts {
		set[text] = true
	}
	return set
}
