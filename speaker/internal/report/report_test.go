package report_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/speaker/internal/report"
)

// recorder is a Writer that keeps what it was given and fails the first times it is told to.
type recorder struct {
	mu       sync.Mutex
	statuses []v1beta1.SpeakerStatus
	failures int
}

func (r *recorder) WriteSpeaker(_ context.Context, status v1beta1.SpeakerStatus) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures > 0 {
		r.failures--
		return errors.New("the API server is away")
	}
	r.statuses = append(r.statuses, status)
	return nil
}

func (r *recorder) members() []int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []int32
	for i := range r.statuses {
		list = append(list, r.statuses[i].MembersSeen)
	}
	return list
}

// inBubble runs a reporter in a bubble of fake time.
func inBubble(t *testing.T, writer *recorder, act func(*report.Reporter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		reporter := report.New(writer, logr.Discard())
		done := make(chan struct{})
		go func() { defer close(done); _ = reporter.Run(ctx) }()
		act(reporter)
		cancel()
		<-done
	})
}

func TestTheSameStateIsWrittenOnce(t *testing.T) {
	t.Parallel()
	writer := &recorder{}
	inBubble(t, writer, func(r *report.Reporter) {
		for range 100 {
			r.Set(v1beta1.SpeakerStatus{MembersSeen: 3})
			time.Sleep(time.Second) // in fake time
		}
	})
	if got := writer.members(); len(got) != 1 {
		t.Errorf("100 times the same state made %d writes, want 1", len(got))
	}
}

func TestAFlappingStateIsWrittenSparinglyAndEndsRight(t *testing.T) {
	t.Parallel()
	writer := &recorder{}
	inBubble(t, writer, func(r *report.Reporter) {
		for i := range int32(600) {
			r.Set(v1beta1.SpeakerStatus{MembersSeen: i})
			time.Sleep(100 * time.Millisecond) // in fake time
		}
		time.Sleep(time.Minute) // in fake time
	})
	got := writer.members()
	if len(got) < 5 || len(got) > 12 {
		t.Errorf("a minute of flapping made %d writes, want 5 at once and one in 10 s", len(got))
	}
	if got[len(got)-1] != 599 {
		t.Errorf("the last write was state %d, want the newest, 599", got[len(got)-1])
	}
}

func TestAStartIsOneWrite(t *testing.T) {
	t.Parallel()
	writer := &recorder{}
	inBubble(t, writer, func(r *report.Reporter) {
		for members := range int32(4) { // the others are met one after another
			r.Set(v1beta1.SpeakerStatus{MembersSeen: members})
			time.Sleep(50 * time.Millisecond) // in fake time
		}
		time.Sleep(time.Second) // in fake time
	})
	if got := writer.members(); len(got) != 1 || got[0] != 3 {
		t.Errorf("four changes within 200 ms were written as %v, want the last, once", got)
	}
}

func TestAFailedWriteIsTriedAgain(t *testing.T) {
	t.Parallel()
	writer := &recorder{failures: 2}
	inBubble(t, writer, func(r *report.Reporter) {
		r.Set(v1beta1.SpeakerStatus{MembersSeen: 2})
		time.Sleep(30 * time.Second) // in fake time
	})
	if got := writer.members(); len(got) != 1 || got[0] != 2 {
		t.Errorf("after two failures the writes were %v, want one of 2 members", got)
	}
}
