// Package lbtest builds the values tests need, in as few words as possible: Services, nodes, speakers and advertisements
// of the core, and the API objects they are compiled from. Each is good as made: the Service has an address and a port,
// the node is ready, its speaker alive; a test names only what it is about. Only tests import it.
package lbtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/berthlb/berth/internal/cluster"
)

// Now is the time at which tests take place: every Snapshot's, an hour after everything in it was made.
func Now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// created is when everything was made.
func created() time.Time { return Now().Add(-time.Hour) }

// ParseName reads "namespace/name".
func ParseName(text string) cluster.Name {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		panic(fmt.Sprintf("lbtest: %q is not namespace/name", text))
	}
	return cluster.Name{Namespace: namespace, Name: name}
}
