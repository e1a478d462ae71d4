package main

import (
	"net"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/cluster"
	"github.com/berthlb/berth/internal/reason"
	"github.com/berthlb/berth/speaker/internal/agent"
	"github.com/berthlb/berth/speaker/internal/report"
)

// report turns what the loop found into this node's Speaker object.
func (s *speaker) report(state agent.State) {
	own := state.Facts.Members[s.options.node]
	status := v1beta1.SpeakerStatus{
		Version:        version,
		BootID:         s.boot,
		GossipAddress:  s.ring.Address().String(),
		Members:        sortedNames(state.Facts.Members),
		MembersSeen:    int32(len(state.Facts.Members)), //nolint:gosec // a cluster has fewer nodes
		Stale:          own.Stale,
		ProxyReady:     own.ProxyReady,
		Settled:        own.Settled,
		Links:          links(own.Links),
		Gateways:       texts(own.Gateways),
		L2Addresses:    texts(state.Have),
		L2AddressCount: int32(len(state.Have)), //nolint:gosec // pools given to one node are smaller
	}
	if own.Outlived > 0 {
		status.Outlived = &metav1.Duration{Duration: own.Outlived}
	}
	for _, version := range own.Versions {
		status.ElectionVersions = append(status.ElectionVersions, int32(version)) //nolint:gosec // small numbers
	}
	meta.SetStatusCondition(&status.Conditions, s.condition(len(state.Facts.Members)))
	status.Conditions[0].LastTransitionTime = s.since(status.Conditions[0])
	s.reporter.Set(status)
}

// condition tells whether the speaker can announce.
func (s *speaker) condition(members int) metav1.Condition {
	why, good := reason.New(reason.Announcing, "the speaker announces what it owns"), true
	expected := len(s.directory.known())
	switch {
	case s.denied.Load():
		why, good = reason.New(reason.NoNetRaw, "opening a raw socket was refused: the container needs the capability NET_RAW"), false
	case members < expected:
		why = reason.New(reason.MembersMissing, "%d of %d speakers are seen alive", members, expected)
	}
	status := metav1.ConditionTrue
	if !good {
		status = metav1.ConditionFalse
	}
	return metav1.Condition{Type: v1beta1.ConditionReady, Status: status, Reason: string(why.Word), Message: why.Message}
}

// since is when the condition came to its present status.
func (s *speaker) since(condition metav1.Condition) metav1.Time {
	if s.ready != condition.Status {
		s.ready, s.readySince = condition.Status, metav1.NewTime(time.Now().Truncate(time.Second))
	}
	return s.readySince
}

// links are the links as the object shows them.
func links(list []cluster.Link) []v1beta1.SpeakerLink {
	shown := make([]v1beta1.SpeakerLink, 0, len(list))
	for _, link := range list {
		entry := v1beta1.SpeakerLink{Name: link.Name, MAC: net.HardwareAddr(link.MAC[:]).String()}
		if link.LinkLocal.IsValid() {
			entry.LinkLocal = link.LinkLocal.String()
		}
		for _, subnet := range link.Subnets {
			entry.Subnets = append(entry.Subnets, subnet.String())
		}
		shown = append(shown, entry)
	}
	return shown
}

// texts are the first addresses of the list as text.
func texts(list []netip.Addr) []string {
	shown := make([]string, 0, min(len(list), report.MaxAddresses))
	for _, address := range list[:cap(shown)] {
		shown = append(shown, address.String())
	}
	return shown
}
