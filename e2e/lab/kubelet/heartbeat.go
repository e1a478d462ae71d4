package kubelet

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The lab's clusters notice a lost node after some 12 s (node-monitor-grace-period of the controller manager); a renewal
// every two seconds can miss five times.
const (
	renewEvery    = 2 * time.Second
	retryEvery    = 100 * time.Millisecond
	leaseSeconds  = 8
	leasesAreKept = corev1.NamespaceNodeLease
)

// heartbeats keeps the Node's Lease fresh and, at the start and after every time that failed, says again that the Node
// is Ready: the controller manager writes Unknown over it when the Lease grows old.
func (k *Kubelet) heartbeats(ctx context.Context) {
	said := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := renewEvery
		if k.frozen.Load() {
			said = false
		} else if err := k.heartbeat(ctx, said); err != nil {
			said, next = false, retryEvery
			k.config.Log.Debug("heartbeat failed", "node", k.config.Node, "error", err)
		} else {
			said = true
		}
		timer.Reset(next)
	}
}

func (k *Kubelet) heartbeat(ctx context.Context, said bool) error {
	ctx, cancel := call(ctx)
	defer cancel()
	if err := k.renew(ctx); err != nil {
		return err
	}
	if said {
		return nil
	}
	status := k.nodeStatus()
	patch, err := replacingPatch(&status, nil, "addresses")
	if err != nil {
		return fmt.Errorf("encode the node's status: %w", err)
	}
	_, err = k.config.Client.CoreV1().Nodes().Patch(ctx, k.config.Node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("say that node %s is ready: %w", k.config.Node, err)
	}
	return nil
}

func (k *Kubelet) renew(ctx context.Context) error {
	leases := k.config.Client.CoordinationV1().Leases(leasesAreKept)
	seconds, now := int32(leaseSeconds), metav1.NowMicro()
	lease, err := leases.Get(ctx, k.config.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.config.Node},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &k.config.Node, LeaseDurationSeconds: &seconds, RenewTime: &now,
			},
		}, metav1.CreateOptions{})
	} else if err == nil {
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the lease of node %s: %w", k.config.Node, err)
	}
	return nil
}

func (k *Kubelet) nodeStatus() corev1.NodeStatus {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"),
		corev1.ResourcePods: resource.MustParse("240"),
	}
	status := corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{
			condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "Bare", "a bare node measures nothing"),
			condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "Bare", "a bare node measures nothing"),
			condition(corev1.NodePIDPressure, corev1.ConditionFalse, "Bare", "a bare node measures nothing"),
			condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "the lab's kubelet runs"),
		},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: k.config.Node}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: "v1.37.2", OperatingSystem: "linux", ContainerRuntimeVersion: "lab://1", OSImage: "berth lab",
		},
	}
	for _, addr := range k.config.Host.Addrs {
		status.Addresses = append(status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	return status
}
