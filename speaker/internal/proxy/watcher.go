package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// askLivezEvery is how often kube-proxy is asked whether it works, until it does.
	askLivezEvery = 200 * time.Millisecond
	// unheardFor is how long nobody may answer there before that is taken for granted.
	unheardFor = 3 * time.Second
)

// Watcher waits until kube-proxy has once answered that it works. Its methods may be called from any goroutine.
type Watcher struct {
	options Options

	mu      sync.Mutex // guards both
	up      bool
	problem string
}

// NewWatcher gives a watcher that has heard nothing yet.
func NewWatcher(options Options) *Watcher { return &Watcher{options: options.complete()} }

// Up is true once kube-proxy has answered 200, or nobody has answered for so long that it cannot be asked.
func (w *Watcher) Up() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// Problem says why kube-proxy could not be asked; empty if it could, or as long as that is not known.
func (w *Watcher) Problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

// Run asks until Up is true, calls wake then, and ends. It ends with ctx too.
func (w *Watcher) Run(ctx context.Context, wake func()) error {
	defer w.options.Client.CloseIdleConnections()
	started, heard := time.Now(), false
	ticker := time.NewTicker(askLivezEvery)
	defer ticker.Stop()
	for {
		status, err := w.options.get(ctx, w.options.Livez, nil)
		heard = heard || err == nil
		switch {
		case ctx.Err() != nil:
			return nil
		case status == http.StatusOK:
			w.set("")
			wake()
			return nil
		case !heard && time.Since(started) >= unheardFor:
			w.options.Log.Info("kube-proxy cannot be asked, announcing without its word", "error", err.Error())
			w.set(err.Error())
			wake()
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// set makes Up true.
func (w *Watcher) set(problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up, w.problem = true, problem
}
