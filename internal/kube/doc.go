// Package kube is Berth's side of the Kubernetes API: what is watched and how much of it is kept, and every write. No
// other package writes to the API server.
package kube
