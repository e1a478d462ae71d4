// Package reason holds every reason Berth gives for what it does and does not do: once, as a word for programs and a
// sentence for people. The same value becomes condition, event, metric label, command line and dashboard cell.
package reason

import (
	"fmt"
	"strings"
)

// Word is a reason's name: CamelCase, stable, fit for a condition's reason and a metric's label.
type Word string

// Severity tells how a reason is to be shown.
type Severity uint8

// The severities. Normal: as it should be. Waiting: will pass by itself. Warning: a person may have to act.
const (
	Normal Severity = iota
	Waiting
	Warning
)

// Reason is one given reason: the word, and the sentence that names the object and the rule.
type Reason struct {
	Word    Word
	Message string
}

// Entry describes a Word in the catalogue.
type Entry struct {
	Word     Word
	Severity Severity
	// Meaning says in a sentence what the word means and what a person can do. It goes into the reference.
	Meaning string
}

// longest is how long a message is at most. The API server refuses a whole status for the sake of one condition with more
// than 32 KiB, and names in a message may be many; what a program reads back comes first.
const longest = 4 << 10

// New gives a reason with the message formatted from format and args, cut where it is too long.
func New(word Word, format string, args ...any) *Reason {
	message := fmt.Sprintf(format, args...)
	if len(message) > longest {
		message = strings.ToValidUTF8(message[:longest], "") + "..."
	}
	return &Reason{Word: word, Message: message}
}

// String is "Word: message".
func (r *Reason) String() string { return string(r.Word) + ": " + r.Message }

// Equal is true if both are absent, or of the same word and message.
func (r *Reason) Equal(other *Reason) bool {
	if r == nil || other == nil {
		return r == other
	}
	return *r == *other
}

// SeverityOf is the severity of a word; an unknown one panics, because every word is in the catalogue (a test reads the
// sources for it).
func SeverityOf(word Word) Severity {
	for _, entry := range Catalogue() {
		if entry.Word == word {
			return entry.Severity
		}
	}
	panic("reason: no entry for " + string(word))
}
