package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/berthlb/berth/internal/reason"
)

// How many events are written at the same time, how many may wait for it, and how long a note may be: the API server
// refuses longer ones.
const (
	eventWriters  = 8
	eventsWaiting = 20_000
	noteLimit     = 1024
)

// Recorder writes events about objects, in the background. client-go's recorder is not used because it takes two events
// with one reason for the same one within six minutes, whatever they say, and keeps no more than 1,000 waiting.
type Recorder struct {
	events   typedeventsv1.EventsGetter
	instance string
	log      logr.Logger
	now      func() time.Time
	queue    chan *eventsv1.Event
	dropped  func()
}

// NewRecorder makes a recorder; instance names this process. dropped is called for every event that is not written.
func NewRecorder(events typedeventsv1.EventsGetter, instance string, log logr.Logger, dropped func()) *Recorder {
	return &Recorder{
		events: events, instance: instance, log: log, now: time.Now, dropped: dropped,
		queue: make(chan *eventsv1.Event, eventsWaiting),
	}
}

// Event records what happened to an object, for its owner. It never waits.
func (r *Recorder) Event(regarding corev1.ObjectReference, action string, said reason.Reason) {
	r.record(fmt.Sprintf("%s.%x", regarding.Name, r.now().UnixNano()), regarding, action, said)
}

// EventOnce records what is so of an object, once for as long as the API server keeps the event: it has a name of its own,
// so that another controller, or this one after a restart, cannot record it again.
func (r *Recorder) EventOnce(regarding corev1.ObjectReference, action string, said reason.Reason) {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s\n%s\n%s", regarding.UID, said.Word, said.Message)
	r.record(fmt.Sprintf("%s.%016x", regarding.Name, sum.Sum64()), regarding, action, said)
}

// record queues an event to be written.
func (r *Recorder) record(name string, regarding corev1.ObjectReference, action string, said reason.Reason) {
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: name, Namespace: regarding.Namespace},
		EventTime:           metav1.NewMicroTime(r.now()),
		ReportingController: "berth.dev/controller",
		ReportingInstance:   r.instance,
		Action:              action,
		Reason:              string(said.Word),
		Regarding:           regarding,
		Note:                shorten(said.Message),
		Type:                corev1.EventTypeNormal,
	}
	if event.Namespace == "" { // about an object without one
		event.Namespace = metav1.NamespaceDefault
	}
	if reason.SeverityOf(said.Word) == reason.Warning {
		event.Type = corev1.EventTypeWarning
	}
	select {
	case r.queue <- event:
	default:
		r.dropped()
	}
}

// shorten cuts a text to what a note may hold.
func shorten(text string) string {
	if len(text) <= noteLimit {
		return text
	}
	return text[:noteLimit-3] + "..."
}

// Start writes events until ctx ends, and then what still waits, for two seconds at most.
func (r *Recorder) Start(ctx context.Context) error {
	var writers sync.WaitGroup
	for range eventWriters {
		writers.Go(func() { r.run(ctx) })
	}
	writers.Wait()
	return nil
}

// run is one writer.
func (r *Recorder) run(ctx context.Context) {
	for {
		select {
		case event := <-r.queue:
			r.write(ctx, event)
		case <-ctx.Done():
			r.drain(context.WithoutCancel(ctx))
			return
		}
	}
}

// drain writes what waits, for as long as one write may take.
func (r *Recorder) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	for {
		select {
		case event := <-r.queue:
			r.write(ctx, event)
		default:
			return
		}
	}
}

// write sends one event. It is not tried again: an event is a help to people, and the condition says the same.
func (r *Recorder) write(ctx context.Context, event *eventsv1.Event) {
	ctx, cancel := context.WithTimeout(ctx, WriteTimeout)
	defer cancel()
	_, err := r.events.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // see EventOnce
		r.dropped()
		r.log.V(1).Info("an event could not be written", "object", event.Regarding.Name, "reason", event.Reason, "error", err.Error())
	}
}

// NeedLeaderElection is false: events written after the lease is lost are still true.
func (r *Recorder) NeedLeaderElection() bool { return false }
