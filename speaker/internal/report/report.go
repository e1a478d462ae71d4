// Package report writes this node's Speaker object: what the speaker says about itself, for people and the controller.
// A change is written within a second, nothing is written that has not changed, and a speaker whose state flaps spends
// at most five writes and then one in ten seconds.
package report

import (
	"context"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"

	"github.com/berthlb/berth/api/v1beta1"
)

// The budget of writes, so that a hundred speakers do not burden the API server.
const (
	burst  = 5
	every  = 10 * time.Second
	retry  = 2 * time.Second
	settle = 400 * time.Millisecond // after a change: a start is several in a row, and one write
)

// MaxAddresses is how many addresses a Speaker object lists.
const MaxAddresses = 250

// Writer writes the status of this node's Speaker object.
type Writer interface {
	WriteSpeaker(ctx context.Context, status v1beta1.SpeakerStatus) error
}

// Reporter writes the newest state given to Set. Set may be called from any goroutine and never blocks.
type Reporter struct {
	writer Writer
	log    logr.Logger
	newest chan v1beta1.SpeakerStatus // mailbox of one
}

// New makes a reporter.
func New(writer Writer, log logr.Logger) *Reporter {
	return &Reporter{writer: writer, log: log, newest: make(chan v1beta1.SpeakerStatus, 1)}
}

// Set replaces the state to write. Only one goroutine may call it.
func (r *Reporter) Set(status v1beta1.SpeakerStatus) {
	select {
	case <-r.newest: // nobody has taken the last one: it is old
	default:
	}
	r.newest <- status
}

// Run writes until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	limiter := rate.NewLimiter(rate.Every(every), burst)
	var written *v1beta1.SpeakerStatus
	for {
		var status v1beta1.SpeakerStatus
		select {
		case <-ctx.Done():
			return nil
		case status = <-r.newest:
		}
		if written != nil && reflect.DeepEqual(*written, status) {
			continue
		}
		if !pause(ctx, settle) || !allowed(ctx, limiter) {
			return nil
		}
		status = r.latest(status)
		if !r.write(ctx, limiter, status) {
			return nil
		}
		written = &status
	}
}

// latest is the newest state: one that came while the writer waited is better than the one it waited with.
func (r *Reporter) latest(status v1beta1.SpeakerStatus) v1beta1.SpeakerStatus {
	select {
	case newer := <-r.newest:
		return newer
	default:
		return status
	}
}

// write writes until it succeeds; false if the context ended before.
func (r *Reporter) write(ctx context.Context, limiter *rate.Limiter, status v1beta1.SpeakerStatus) bool {
	for logged := false; ; {
		err := r.writer.WriteSpeaker(ctx, status)
		if err == nil {
			return true
		}
		if !logged && ctx.Err() == nil {
			r.log.Error(err, "cannot write this node's Speaker object, will go on trying")
			logged = true
		}
		if !pause(ctx, retry) || !allowed(ctx, limiter) {
			return false
		}
	}
}

// allowed waits until the budget allows a write; false if the context ended before.
func allowed(ctx context.Context, limiter *rate.Limiter) bool { return limiter.Wait(ctx) == nil }

// pause waits; false if the context ended before.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
