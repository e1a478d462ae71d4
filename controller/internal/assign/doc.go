// Package assign gives Services their addresses: it takes Services, pools, nodes and networks in from informers, has the
// ledger decide, and writes the answers.
//
//	informers ──► objects, picture ──► queue, oldest first ──► decider: Decide, Hold ──► writers: one apply ──► Settle
//	                                        ▲                                                                   │
//	                                        └──────────────── Services that something freed may help ───────────┘
//
// Decisions are serial: one goroutine makes them, each under the lock, in order of age among those due, so that of two
// that want the same thing the older gets it (rule P18). Writes run in parallel; while one of a Service is under way that
// Service is not decided about again.
//
// It runs on the leader only. On gaining the lease it lists all Services from the API server itself and adopts what their
// statuses hold before it decides anything (rule A12).
package assign
