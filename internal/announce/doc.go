// Package announce decides, for every address, which node answers for it and why every other node does not. Decide is
// the one primitive: speakers read their claims from its table, the controller the condition berth.dev/Announced, and
// tools the reasons. It is a pure function of a snapshot, so speakers with the same snapshot agree (rule P1).
//
//	Services ──► holders: address → Services on it
//	               │ usable endpoints, advertisements for them
//	             claimants: the Services that count, each other one with its reason
//	nodes, ────►   │ class: advertisements, links (rules E1, E12)
//	members      candidates: nodes, each other one with the rule that removed it
//	               │ tier (rule E2), hash (rule E3)
//	             Verdict: owner and link, or the reason why nobody answers
package announce
