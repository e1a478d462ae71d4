package reason_test

import (
	"testing"

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
