// Package proxy tells whether kube-proxy on this node is ready for an address, so that nobody is invited to a door that is
// not there yet (rule P21).
//
// Watcher waits, once after the start, until kube-proxy works at all. Gate holds back single announcements until
// kube-proxy has them. Both ask kube-proxy by HTTP on this node, only while somebody waits, and both open after a fixed time
// where there is nobody to ask: another proxy than kube-proxy is no reason not to announce.
package proxy
