package assign

import (
	"cmp"
	"time"

	"github.com/google/btree"

	"github.com/berthlb/berth/internal/cluster"
)

// due is a Service that is to be decided about.
type due struct {
	created time.Time
	name    cluster.Name
}

// queue is the Services to decide about, the oldest first. A Service whose status is being written waits aside until
// that is done. The Assigner's lock guards it.
type queue struct {
	due  *btree.BTreeG[due]
	busy map[cluster.Name]bool // true: due again once its write is done
}

func newQueue() *queue {
	less := func(a, b due) bool {
		return cmp.Or(a.created.Compare(b.created), a.name.Compare(b.name)) < 0
	}
	return &queue{due: btree.NewG(8, less), busy: map[cluster.Name]bool{}}
}

// add makes a Service due.
func (q *queue) add(name cluster.Name, created time.Time) {
	if _, busy := q.busy[name]; busy {
		q.busy[name] = true
		return
	}
	q.due.ReplaceOrInsert(due{created, name})
}

// next takes the oldest Service that is due out and marks it busy; false if none is due.
func (q *queue) next() (cluster.Name, bool) {
	for {
		oldest, isDue := q.due.DeleteMin()
		if !isDue {
			return cluster.Name{}, false
		}
		if _, busy := q.busy[oldest.name]; busy { // made anew under the name with another age
			q.busy[oldest.name] = true
			continue
		}
		q.busy[oldest.name] = false
		return oldest.name, true
	}
}

// done ends a Service's being busy and is true if it is due again.
func (q *queue) done(name cluster.Name) bool {
	again := q.busy[name]
	delete(q.busy, name)
	return again
}
