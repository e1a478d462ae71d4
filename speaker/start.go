package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berthlb/berth/internal/cluster"
)

// The gossip key's Secret: made once by the controller (rule E4).
const (
	gossipSecret = "berth-gossip"
	gossipKey    = "key"
	askAgain     = time.Second
)

// restConfig is how to reach the API server.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the API server (outside a pod set --kubeconfig): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read --kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// identity is what the speaker must know before it can join the others.
type identity struct {
	address   netip.Addr                    // of the node, for gossip
	addresses map[cluster.Family]netip.Addr // of the node, in each family it has
	keys      [][]byte
	label     string // of the cluster
}

// identify waits until the API server has told all of it. It is silent about waiting but for one line per cause.
func identify(ctx context.Context, reader client.Reader, options *flags, log logr.Logger) (identity, error) {
	var id identity
	steps := []func(context.Context) error{
		func(ctx context.Context) (err error) {
			id.addresses, err = nodeAddresses(ctx, reader, options.node)
			id.address = first(id.addresses)
			return err
		},
		func(ctx context.Context) (err error) { id.keys, err = keys(ctx, reader, options.namespace); return err },
		func(ctx context.Context) (err error) { id.label, err = clusterUID(ctx, reader); return err },
	}
	for _, step := range steps {
		if err := untilDone(ctx, step, log); err != nil {
			return identity{}, err
		}
	}
	return id, nil
}

// untilDone repeats a step each second until it succeeds. What will not pass by itself ends it: no rights.
func untilDone(ctx context.Context, step func(context.Context) error, log logr.Logger) error {
	last := ""
	for {
		err := step(ctx)
		switch {
		case err == nil:
			return nil
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
			return err
		case err.Error() != last && ctx.Err() == nil:
			last = err.Error()
			log.Info("waiting", "for", last)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %w: %w", ctx.Err(), err)
		case <-time.After(askAgain):
		}
	}
}

// nodeAddresses are the node's InternalIPs: the first of each family.
func nodeAddresses(ctx context.Context, reader client.Reader, name string) (map[cluster.Family]netip.Addr, error) {
	node := &corev1.Node{}
	if err := reader.Get(ctx, types.NamespacedName{Name: name}, node); err != nil {
		return nil, fmt.Errorf("read Node %s (--node-name): %w", name, err)
	}
	found := map[cluster.Family]netip.Addr{}
	for i := range node.Status.Addresses {
		if node.Status.Addresses[i].Type != corev1.NodeInternalIP {
			continue
		}
		address, err := netip.ParseAddr(node.Status.Addresses[i].Address)
		if err == nil && !found[cluster.FamilyOf(address)].IsValid() {
			found[cluster.FamilyOf(address)] = address
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("node %s has no InternalIP yet", name)
	}
	return found, nil
}

// first is the IPv4 address if there is one, else the IPv6 address.
func first(addresses map[cluster.Family]netip.Addr) netip.Addr {
	if four, has := addresses[cluster.IPv4]; has {
		return four
	}
	return addresses[cluster.IPv6]
}

// keys are the gossip keys: the Secret's key, and others beside it while keys are rotated.
func keys(ctx context.Context, reader client.Reader, namespace string) ([][]byte, error) {
	secret := &corev1.Secret{}
	if err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: gossipSecret}, secret); err != nil {
		return nil, fmt.Errorf("read the gossip key (Secret %s/%s, made by the controller): %w", namespace, gossipSecret, err)
	}
	key := secret.Data[gossipKey]
	if len(key) != 32 {
		return nil, fmt.Errorf("the gossip key (Secret %s/%s, key %q) has %d bytes, it must have 32", namespace, gossipSecret, gossipKey, len(key))
	}
	return [][]byte{key}, nil
}

// clusterUID tells clusters apart that share a network: the UID of the namespace kube-system.
func clusterUID(ctx context.Context, reader client.Reader) (string, error) {
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, types.NamespacedName{Name: "kube-system"}, namespace); err != nil {
		return "", fmt.Errorf("read namespace kube-system: %w", err)
	}
	return string(namespace.UID), nil
}

// bootID is the kernel's name for this boot (proc(5), /proc/sys/kernel/random/boot_id).
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
