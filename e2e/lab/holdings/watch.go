package holdings

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
)

// Services lists and watches the Services of a namespace: client-go's.
type Services interface {
	List(ctx context.Context, options metav1.ListOptions) (*corev1.ServiceList, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Watch is an account that is kept from the API server's watch, which shows every state there was.
type Watch struct {
	services Services
	cancel   context.CancelFunc
	done     chan struct{}

	mu       sync.Mutex // guards all below
	account  *Account
	versions map[string]string // resourceVersions, by name
	err      error             // why it ended by itself
}

// Start begins to watch the Services of a namespace.
func Start(ctx context.Context, services Services) (*Watch, error) {
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	// The API server ends the watch of whoever is slow, as the lab is on a busy machine: it is taken up where it ended.
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, watcher{services})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch Services: %w", err)
	}
	w := &Watch{services: services, cancel: cancel, done: make(chan struct{}), account: New(), versions: map[string]string{}}
	for i := range list.Items {
		w.take(watch.Event{Type: watch.Added, Object: &list.Items[i]})
	}
	go w.follow(ctx, events)
	return w, nil
}

// watcher is the Services as client-go's RetryWatcher wants them.
type watcher struct{ services Services }

// WatchWithContext watches.
func (w watcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.services.Watch(ctx, options)
}

// follow takes in what happens until ctx ends.
func (w *Watch) follow(ctx context.Context, events watch.Interface) {
	defer close(w.done)
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-events.ResultChan():
			if !open || event.Type == watch.Error {
				w.fail(errors.New("the watch of Services ended by itself"))
				return
			}
			w.take(event)
		}
	}
}

func (w *Watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func (w *Watch) take(event watch.Event) {
	service, ok := event.Object.(*corev1.Service)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if event.Type == watch.Deleted {
		delete(w.versions, service.Name)
		w.account.Remove(service.Name, time.Now())
		return
	}
	w.versions[service.Name] = service.ResourceVersion
	w.account.Set(stateOf(service), time.Now())
}

func stateOf(service *corev1.Service) State {
	state := State{Name: service.Name, UID: string(service.UID), Key: service.Annotations["berth.dev/sharing-key"]}
	for i := range service.Status.LoadBalancer.Ingress {
		state.Addresses = append(state.Addresses, service.Status.LoadBalancer.Ingress[i].IP)
	}
	return state
}

// catchUp is how long the watch may need to show what a list shows.
const catchUp = 5 * time.Second

// Stop ends the watch once it has shown what there is now, and answers the account.
func (w *Watch) Stop(ctx context.Context) (*Account, error) {
	defer func() { w.cancel(); <-w.done }()
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	tick := time.NewTicker(catchUp / 100)
	defer tick.Stop()
	for {
		shown, err := w.isAbreast(ctx)
		if err != nil || shown {
			return w.account, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the watch of Services lags behind for %s", catchUp)
		case <-tick.C:
		}
	}
}

// isAbreast is true if the watch has shown all Services as they are now.
func (w *Watch) isAbreast(ctx context.Context) (bool, error) {
	list, err := w.services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list Services: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range list.Items {
		if w.versions[list.Items[i].Name] != list.Items[i].ResourceVersion {
			return false, w.err
		}
	}
	return len(w.versions) == len(list.Items), w.err
}
