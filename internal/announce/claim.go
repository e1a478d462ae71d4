package announce

import (
	"net/netip"

	"github.com/berthlb/berth/internal/cluster"
)

// Claim is one address that a node answers for.
type Claim struct {
	Address netip.Addr
	// Interfaces are the names of the links that may answer, sorted; none means every link (rules L2, E12).
	Interfaces []string
	// Epoch grows with every change of membership, link or ownership that touches the address, also one that changed
	// back: an announcer that sees another epoch than it announced for announces again (rule P4).
	Epoch uint64
	// HandedOver is true for an address that another node owns by now, until that has been heard of on the link: requests
	// are answered, and nothing is announced (rules E6, P21).
	HandedOver bool
	// Services are those the address is announced for, sorted by name.
	Services []*cluster.Service
}
