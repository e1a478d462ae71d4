// Package announce decides, for every address, which node answers for it and why every other node does not. Decide is
// the one primitive: speakers read their claims from its table, the controller the condition berth.dev/Announced, and
// tools the reasons. It is a pure function of a snapshot, so speakers with the same snapshot agree (rule P1).
//
//	Services, pools, advertisements ──► groups: address → Services on it
//	                                      │ usable endpoints, matching advertisements
//	nodes, members, links ──► candidates: address → nodes (rule E1), each other node with the rule that removed it
//	                                      │ tiers (rule E2), hash (rule E3)
//	                                      ▼
//	                                    Verdict: owner and link, or the reason why nobody answers
package announce
