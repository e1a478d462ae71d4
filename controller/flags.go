package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/compile"
)

// flags are what the command line says.
type flags struct {
	kubeconfig        string
	namespace         string
	leaseName         string
	loadBalancerClass string
	defaultClass      bool
	leaveTaints       []string
	ignoreLabel       bool
	listen            string
	verbosity         int
	version           bool
}

// parseFlags reads the command line; what the chart sets by the downward API comes from the environment.
func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "file with the API server's address and credentials; empty: those of the pod")
	set.StringVar(&f.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of Berth, for the Lease and the gossip key (environment: POD_NAMESPACE)")
	set.StringVar(&f.leaseName, "lease-name", "berth-controller", "name of the Lease that makes one controller active")
	set.StringVar(&f.loadBalancerClass, "load-balancer-class", v1beta1.LoadBalancerClass, "spec.loadBalancerClass of the Services that are ours")
	set.BoolVar(&f.defaultClass, "default", true, "serve Services without spec.loadBalancerClass too")
	set.StringSliceVar(&f.leaveTaints, "leave-taints", compile.DefaultLeaveTaints(), "keys of taints with which a node leaves; as the speakers have it")
	set.BoolVar(&f.ignoreLabel, "ignore-exclude-label", false, "node.kubernetes.io/exclude-from-external-load-balancers means nothing; as the speakers have it")
	set.StringVar(&f.listen, "listen", ":7950", "address of the health and metrics endpoints")
	set.IntVarP(&f.verbosity, "verbosity", "v", 0, "0: what changed; 1: also what was considered")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	if err := set.Parse(args); err != nil {
		return nil, fmt.Errorf("read flags: %w", err)
	}
	if f.version {
		return f, nil
	}
	err := f.check()
	return f, err
}

// check says what is missing, with the setting to mend.
func (f *flags) check() error {
	switch {
	case f.namespace == "":
		return errors.New("no namespace: set --namespace, or POD_NAMESPACE from metadata.namespace of the pod")
	case f.leaseName == "":
		return errors.New("no name of the Lease: set --lease-name")
	case f.loadBalancerClass == "" && !f.defaultClass:
		return errors.New("no Service would be served: set --load-balancer-class or --default")
	}
	return nil
}

// class says which Services are ours.
func (f *flags) class() compile.Options {
	return compile.Options{
		LoadBalancerClass: f.loadBalancerClass, Default: f.defaultClass,
		LeaveTaints: f.leaveTaints, IgnoreExcludeLabel: f.ignoreLabel,
	}
}
