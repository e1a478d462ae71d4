package sandbox

import (
	"fmt"
	"os"
	"strings"
	"time"
)

const probeTimeout = 5 * time.Second

// Rung is how much of a lab a machine allows, best first.
type Rung byte

// The rungs.
const (
	RungA Rung = 'A' // namespaces and control groups as root: nodes may have a real kubelet and containers
	RungB Rung = 'B' // namespaces as root
	RungC Rung = 'C' // namespaces inside an unprivileged user namespace
	RungD Rung = 'D' // none: everything on loopback
)

// String describes the rung as the lab's first and last line name it.
func (r Rung) String() string {
	switch r {
	case RungA:
		return "rung A: nodes with a kubelet and containers, as root"
	case RungB:
		return "rung B: bare nodes in network namespaces, as root"
	case RungC:
		return "rung C: bare nodes in network namespaces of an unprivileged user namespace"
	case RungD:
		return "rung D: no namespaces, everything on loopback"
	default:
		return fmt.Sprintf("rung %q", string(r))
	}
}

// Choice is the rung that was found to work and, where a better one was tried, why that did not.
type Choice struct {
	Rung    Rung
	Refused []string // "B: unshare: operation not permitted"
}

// String names the rung and what stood in the way of a better one.
func (c Choice) String() string {
	if len(c.Refused) == 0 {
		return c.Rung.String()
	}
	return fmt.Sprintf("%s (%s)", c.Rung, strings.Join(c.Refused, "; "))
}

// Choose finds the best rung by doing what a lab does there, from the one of which the caller can make use downwards.
// BERTH_RUNG forces one; BERTH_MIN_RUNG makes a lesser one than it an error. A caller that has no use for what they ask
// takes the best of what it has use for.
func Choose(top Rung) (Choice, error) {
	return choose(top, os.Getenv, os.Geteuid() == 0, probe)
}

func choose(top Rung, getenv func(string) string, root bool, try func(Rung) error) (Choice, error) {
	asked := map[string]Rung{}
	for _, name := range []string{"BERTH_RUNG", "BERTH_MIN_RUNG"} {
		switch value := getenv(name); value {
		case "":
		case "A", "B", "C", "D":
			asked[name] = max(Rung(value[0]), top)
		default:
			return Choice{}, fmt.Errorf("%s is %q: it must be A, B, C or D", name, value)
		}
	}
	choice, err := best(top, asked["BERTH_RUNG"], root, try)
	if err != nil {
		return Choice{}, err
	}
	if least := asked["BERTH_MIN_RUNG"]; least != 0 && choice.Rung > least {
		return Choice{}, fmt.Errorf("this machine allows %s, and BERTH_MIN_RUNG asks for %c at least", choice, least)
	}
	return choice, nil
}

// best walks down the rungs; a forced one is the only one that may be tried.
func best(top, forced Rung, root bool, try func(Rung) error) (Choice, error) {
	var choice Choice
	for _, rung := range []Rung{RungA, RungB, RungC} {
		if rung < top || forced != 0 && forced != rung {
			continue
		}
		err := errNotRoot
		if rung > RungB || root {
			err = try(rung)
		}
		if err == nil {
			choice.Rung = rung
			return choice, nil
		}
		choice.Refused = append(choice.Refused, fmt.Sprintf("%c: %v", rung, err))
	}
	if forced == 0 || forced == RungD {
		choice.Rung = RungD
		return choice, nil
	}
	return Choice{}, fmt.Errorf("BERTH_RUNG=%c does not work here: %s", forced, strings.Join(choice.Refused, "; "))
}
