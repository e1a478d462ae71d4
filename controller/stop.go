package main

import "github.com/go-logr/logr"

// leaderLost is what controller-runtime says at Error whenever a leader is stopped and gives its lease back as it should
// (manager/internal.go): it takes the end that it has asked for itself for a loss. A lease that is really lost ends the
// process with an error of its own.
const leaderLost = "leader election lost"

// stopSink passes that one line on at debug level: a line at Error means that a human may have to act.
type stopSink struct{ logr.LogSink }

// Error implements logr.LogSink.
func (s stopSink) Error(err error, message string, facts ...any) {
	if err == nil || err.Error() != leaderLost {
		s.LogSink.Error(err, message, facts...)
		return
	}
	if s.Enabled(1) {
		s.Info(1, message, append(facts, "error", leaderLost)...)
	}
}

// WithValues implements logr.LogSink.
func (s stopSink) WithValues(facts ...any) logr.LogSink {
	return stopSink{s.LogSink.WithValues(facts...)}
}

// WithName implements logr.LogSink.
func (s stopSink) WithName(name string) logr.LogSink { return stopSink{s.LogSink.WithName(name)} }
