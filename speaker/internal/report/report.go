// Package report writes this node's Speaker object: what the speaker says about itself, for people and the controller.
// A change is written within a second, nothing is written that has not changed, and a speaker whose state flaps spends
// at most five writes and then one in ten seconds.
package report

import (
	"context"
	"fmt"
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
		if !pause(ctx, settle) || limiter.Wait(ctx) != nil {
			return nil
		}
		status = r.latest(status)
		if err := r.write(ctx, limiter, status); err != nil {
			return nil // the context has ended
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

// write writes until it succeeds; it fails only when the context has ended.
func (r *Reporter) write(ctx context.Context, limiter *rate.Limiter, status v1beta1.SpeakerStatus) error {
	for logged := false; ; {
		err := r.writer.WriteSpeaker(ctx, status)
		if err == nil {
			return nil
		}
		if !logged && ctx.Err() == nil {
			r.log.Error(err, "cannot write this node's Speaker object, will go on trying")
			logged = true
		}
		if !pause(ctx, retry) {
			return fmt.Errorf("write Speaker object: %w", ctx.Err())
		}
		if err := limiter.Wait(ctx); err != nil {
			return fmt.Errorf("write Speaker object: %w", err)
		}
	}
}

// pause waits; false if the context ended before.
func pause(ctx context.Context, duration time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(duration):
		return true
	}
}
