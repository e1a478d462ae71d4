package reason_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berthlb/berth/internal/reason"
)

// TestEqual: absent reasons are equal, others by word and message.
func TestEqual(t *testing.T) {
	t.Parallel()
	one := reason.New(reason.PoolFull, "pool %s is full", "public")
	cases := map[string]struct {
		reason string
		a, b   *reason.Reason
		want   bool
	}{
		"Absent":       {reason: "none and none", want: true},
		"OneAbsent":    {reason: "one and none", a: one},
		"OtherAbsent":  {reason: "none and one", b: one},
		"Same":         {reason: "word and message", a: one, b: reason.New(reason.PoolFull, "pool public is full"), want: true},
		"OtherWord":    {reason: "the word differs", a: one, b: reason.New(reason.NoPool, "pool public is full")},
		"OtherMessage": {reason: "the message differs", a: one, b: reason.New(reason.PoolFull, "pool private is full")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.a.Equal(c.b); got != c.want {
				t.Errorf("%s: %v", c.reason, got)
			}
		})
	}
	if got, want := one.String(), "PoolFull: pool public is full"; got != want {
		t.Errorf("String is %q, want %q", got, want)
	}
}

// TestLongMessagesAreCut: the API server refuses a status with a condition of more than 32 KiB.
func TestLongMessagesAreCut(t *testing.T) {
	t.Parallel()
	message := reason.New(reason.PoolFull, "begins %s", strings.Repeat("ü", 1<<20)).Message
	if !strings.HasPrefix(message, "begins ü") || !strings.HasSuffix(message, "ü...") || len(message) > 5000 || !utf8.ValidString(message) {
		t.Errorf("a message of %d bytes: %.20s ... %s", len(message), message, message[len(message)-10:])
	}
}
