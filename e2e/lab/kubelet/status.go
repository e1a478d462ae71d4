package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// report writes the pod's status if it differs from what was last written, or if the API says otherwise: of a node that
// did not report for a while the controller manager says that its pods are not ready.
func (w *worker) report(ctx context.Context) error {
	patch, err := w.patch()
	if err != nil {
		return fmt.Errorf("encode the status of pod %s: %w", w.key, err)
	}
	if string(patch) == w.told && w.agreed() {
		return nil
	}
	ctx, cancel := call(ctx)
	defer cancel()
	_, err = w.kubelet.config.Client.CoreV1().Pods(w.key.Namespace).Patch(ctx, w.key.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the status of pod %s: %w", w.key, err)
	}
	w.told = string(patch)
	return nil
}

// agreed tells whether the API holds the readiness that was last computed.
func (w *worker) agreed() bool {
	return slices.ContainsFunc(w.pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == w.conditions[corev1.PodReady].Status
	})
}

// patch leaves conditions of others as they are.
func (w *worker) patch() ([]byte, error) {
	status := w.status()
	return replacingPatch(&status, map[string]any{"uid": w.pod.UID}, "podIPs", "hostIPs")
}

// replacingPatch is a strategic merge patch of a status that replaces the named lists. Merged, they would keep the
// addresses of the time before a node's restart, or meet their own kind: Node addresses are merged by their type, of
// which a dual-stack node has two alike.
func replacingPatch(status any, metadata map[string]any, lists ...string) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		if items, ok := fields[list].([]any); ok {
			fields[list] = append([]any{map[string]any{"$patch": "replace"}}, items...)
		}
	}
	patch := map[string]any{"status": fields}
	if metadata != nil {
		patch["metadata"] = metadata
	}
	return json.Marshal(patch)
}

// status is what a kubelet says of a pod. Times are those of the worker's start, so that equal facts encode equally.
func (w *worker) status() corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodPending, StartTime: &w.started}
	for _, addr := range w.kubelet.config.Host.Addrs {
		status.HostIPs = append(status.HostIPs, corev1.HostIP{IP: addr.String()})
	}
	status.HostIP = status.HostIPs[0].IP
	for _, addr := range w.addrs {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: addr.String()})
	}
	if len(w.addrs) > 0 {
		status.PodIP = status.PodIPs[0].IP
	}
	ready := len(w.containers) > 0
	for _, c := range w.containers {
		if c.running() {
			status.Phase = corev1.PodRunning
		}
		own := w.ready(c)
		ready = ready && own
		status.ContainerStatuses = append(status.ContainerStatuses, c.status(own))
	}
	status.Conditions = []corev1.PodCondition{
		w.condition(corev1.PodReadyToStartContainers, w.space != nil),
		w.condition(corev1.PodInitialized, true),
		w.condition(corev1.ContainersReady, ready),
		w.condition(corev1.PodReady, ready && w.gatesOpen()),
	}
	return status
}

// ready is a running container's readiness: what a scene has set, else what its probe found.
func (w *worker) ready(c *container) bool {
	switch w.kubelet.readiness(w.key) {
	case Ready:
		return c.running()
	case NotReady:
		return false
	default:
		return c.running() && c.ready
	}
}

// gatesOpen tells whether every condition that the pod's readiness gates name is true.
func (w *worker) gatesOpen() bool {
	for _, gate := range w.pod.Spec.ReadinessGates {
		open := slices.ContainsFunc(w.pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !open {
			return false
		}
	}
	return true
}

// condition keeps the time of a condition that has not changed.
func (w *worker) condition(kind corev1.PodConditionType, holds bool) corev1.PodCondition {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{
		Type: kind, Status: status, LastTransitionTime: w.transition(kind, status), ObservedGeneration: w.pod.Generation,
	}
}

func (w *worker) transition(kind corev1.PodConditionType, status corev1.ConditionStatus) metav1.Time {
	last, ok := w.conditions[kind]
	if !ok || last.Status != status {
		last = corev1.PodCondition{Status: status, LastTransitionTime: metav1.Now()}
		w.conditions[kind] = last
	}
	return last.LastTransitionTime
}

func (c *container) status(ready bool) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image, Ready: ready, RestartCount: c.restarts,
	}
	running := c.running()
	status.Started = &running
	switch {
	case running:
		status.ContainerID = fmt.Sprintf("lab://%d", c.process.Pid())
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: c.started}
	case c.waiting != "":
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.waiting}
	case c.process != nil:
		status.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: c.started}
	default:
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
	return status
}
