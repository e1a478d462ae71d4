package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

// TestStopIsNoError: what every stop of a leader says is no error, everything else stays one.
func TestStopIsNoError(t *testing.T) {
	t.Parallel()
	var lines []string
	sink := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}).GetSink()
	log := logr.New(stopSink{sink}).WithName("manager").WithValues("a", "b")
	log.Error(errors.New(leaderLost), "error received after stop sequence was engaged")
	if lines != nil {
		t.Errorf("a stop says %q", lines)
	}
	log.Error(errors.New("disk full"), "error received after stop sequence was engaged")
	if len(lines) != 1 || !strings.Contains(lines[0], "disk full") {
		t.Errorf("another error says %q", lines)
	}
}
