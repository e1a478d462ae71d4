package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// TestNewestFactsAreToldLast: a caller that looked before kube-proxy was ready and is then held up must not have the last
// word, else the other speakers hold this node for one that is not ready, and it never answers.
func TestNewestFactsAreToldLast(t *testing.T) {
	t.Parallel()
	var teller teller
	var proxyReady, said atomic.Bool
	say := func(m cluster.Member) { said.Store(m.ProxyReady) }
	looked, goOn, second := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var callers sync.WaitGroup
	callers.Go(func() {
		teller.tell(func() cluster.Member {
			seen := cluster.Member{ProxyReady: proxyReady.Load()}
			close(looked)
			<-goOn // held up
			return seen
		}, say)
	})
	<-looked
	proxyReady.Store(true)
	callers.Go(func() {
		defer close(second)
		teller.tell(func() cluster.Member { return cluster.Member{ProxyReady: proxyReady.Load()} }, say)
	})
	select { // the second is done at once, unless it rightly waits for the first
	case <-second:
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	callers.Wait()
	if !said.Load() {
		t.Error("the last thing told is that kube-proxy is not ready, although it is")
	}
}
