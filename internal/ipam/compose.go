package ipam

import (
	"slices"
	"strings"

	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
)

// compose is step 5.
func (l *Ledger) compose(service *cluster.Service, answers []answer, lost []loss) Decision {
	decision := Decision{Verdict: Set, Renumbered: service.Recorded.Renumbered}
	var refusals []answer
	var outside []string
	for i := range answers {
		a := &answers[i]
		decision.waits = append(decision.waits, a.waits...)
		if a.refusal != nil {
			refusals = append(refusals, *a)
		}
		if !a.chosen.address.IsValid() {
			continue
		}
		decision.Addresses = append(decision.Addresses, a.chosen.address)
		decision.Pools = append(decision.Pools, a.chosen.pool)
		if !l.inPool(a.chosen.address) {
			outside = append(outside, a.chosen.address.String())
		}
	}
	if consents(service) && len(decision.Addresses) > 0 && !slices.ContainsFunc(answers, func(a answer) bool { return a.unmoved() }) {
		decision.Renumbered = service.Renumber
	}
	decision.Complete = len(refusals) == 0 || partly(service, &decision)
	decision.Reason = l.describe(service, &decision, refusals, outside, lost)
	for i := range refusals {
		for _, why := range slices.Concat([]*reason.Reason{refusals[i].refusal}, refusals[i].also) {
			other := slices.Clone(refusals[i:])
			other[0].refusal = why
			decision.Also = append(decision.Also, l.describe(service, &decision, other, outside, lost))
		}
	}
	return decision
}

// unmoved is true if the owner consents to another address and it could not be had.
func (a *answer) unmoved() bool { return a.moving && (a.refusal != nil || a.stays) }

// partly is true if the Service wants no more than could be had: as many families as there are (rule A2).
func partly(service *cluster.Service, decision *Decision) bool {
	return service.FamilyPolicy == cluster.PreferDualStack && len(decision.Addresses) > 0 && !wishes(service)
}

// wishes is true if the Service asks for something by name.
func wishes(service *cluster.Service) bool {
	return len(service.Request) > 0 || service.RequestPool != "" || service.RequestProblem != nil
}

// describe gives the reason of an answer. The message of a Service that holds addresses names them, each as a word of
// its own: that is the record that they are from Berth (rule A14).
func (l *Ledger) describe(service *cluster.Service, decision *Decision, refusals []answer, outside []string, lost []loss) reason.Reason {
	has := holding(decision)
	switch {
	case has == "":
		return pending(service, refusals)
	case len(refusals) > 0 && decision.Complete:
		return *reason.New(reason.PartlyAllocated, "%s; no %s address: %s", has, refusals[0].family, refusals[0].refusal.Message)
	case len(refusals) > 0:
		return *reason.New(reason.RequestUnmet, "keeps %s; %s: %s", has, refusals[0].refusal.Word, refusals[0].refusal.Message)
	case len(lost) > 0 && lost[0].broken:
		return *reason.New(reason.SharingBroken, "%s, since %s can no longer be shared with Service %s: %s", has, lost[0].address, lost[0].to, lost[0].why)
	case len(lost) > 0:
		return *reason.New(reason.MovedDuplicate, "%s, since %s is also held by Service %s, which got it first", has, lost[0].address, lost[0].to)
	case len(outside) > 0:
		return *reason.New(reason.OutOfPool, "%s; no pool contains %s any more", has, strings.Join(outside, " and "))
	}
	for _, address := range decision.Addresses {
		if why := l.merelyTolerated(service, address); why != "" {
			return *reason.New(reason.SharingNotAllowed, "%s; %s", has, why)
		}
	}
	return reason.Reason{Word: reason.Allocated, Message: has}
}

// pending is the reason that a Service has no address. Where two families are wanted it says which one is missing.
func pending(service *cluster.Service, refusals []answer) reason.Reason {
	if len(refusals) == 0 { // a Service without any cluster IP, or headless without families
		return *reason.New(reason.NoPool, "the Service has no IP family yet")
	}
	first := refusals[0]
	if len(service.Families) > 1 && first.refusal != service.RequestProblem && !strings.Contains(first.refusal.Message, first.family.String()) {
		return *reason.New(first.refusal.Word, "%s: %s", first.family, first.refusal.Message)
	}
	return *first.refusal
}

// holding is "192.0.2.10 from pool public and 2001:db8::10 from pool six"; "" if nothing is held.
func holding(decision *Decision) string {
	parts := make([]string, len(decision.Addresses))
	for i, address := range decision.Addresses {
		parts[i] = address.String() + " from pool " + decision.Pools[i]
	}
	return strings.Join(parts, " and ")
}
