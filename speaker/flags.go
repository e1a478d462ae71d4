package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"github.com/spf13/pflag"

	"github.com/berthlb/berth/api/v1beta1"
	"github.com/berthlb/berth/internal/compile"
	"github.com/berthlb/berth/speaker/internal/wire"
)

// flags are what the command line says.
type flags struct {
	kubeconfig        string
	node              string
	namespace         string
	gossipPort        uint16
	listen            string
	healthSocket      string
	excludeInterfaces string
	fastDetection     bool
	loadBalancerClass string
	defaultClass      bool
	leaveTaints       []string
	ignoreLabel       bool
	proxyHealth       string
	proxyMetrics      string
	verbosity         int
	version           bool

	exclude *regexp.Regexp // excludeInterfaces
}

// parseFlags reads the command line; what the chart sets by the downward API comes from the environment.
func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	set := pflag.NewFlagSet("speaker", pflag.ContinueOnError)
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "file with the API server's address and credentials; empty: those of the pod")
	set.StringVar(&f.node, "node-name", os.Getenv("NODE_NAME"), "name of the Node this speaker runs on (environment: NODE_NAME)")
	set.StringVar(&f.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of Berth, where the gossip key is (environment: POD_NAMESPACE)")
	set.Uint16Var(&f.gossipPort, "gossip-port", 7948, "TCP and UDP port on which speakers talk to each other; the same on all nodes")
	set.StringVar(&f.listen, "listen", ":7949", "address of the health and metrics endpoints")
	set.StringVar(&f.healthSocket, "health-socket", "", "unix socket that serves the same for \"speaker health\", the probes of the pod; empty: none")
	set.StringVar(&f.excludeInterfaces, "exclude-interfaces", wire.DefaultExclude, "regular expression of link names that never announce")
	set.BoolVar(&f.fastDetection, "fast-detection", true, "have two neighbours watch each node by heartbeats and ARP; without it memberlist alone does")
	set.StringVar(&f.loadBalancerClass, "load-balancer-class", v1beta1.LoadBalancerClass, "spec.loadBalancerClass of the Services that are ours")
	set.BoolVar(&f.defaultClass, "default", true, "serve Services without spec.loadBalancerClass too")
	set.StringSliceVar(&f.leaveTaints, "leave-taints", compile.DefaultLeaveTaints(), "keys of taints with which a node leaves; as the controller has it")
	set.BoolVar(&f.ignoreLabel, "ignore-exclude-label", false, "node.kubernetes.io/exclude-from-external-load-balancers means nothing; as for the controller")
	set.StringVar(&f.proxyHealth, "kube-proxy-livez", "http://127.0.0.1:10256/livez", "kube-proxy's health endpoint")
	set.StringVar(&f.proxyMetrics, "kube-proxy-metrics", "http://127.0.0.1:10249/metrics", "kube-proxy's metrics endpoint")
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

// compile is what the flags say about objects.
func (f *flags) compile() compile.Options {
	return compile.Options{
		LoadBalancerClass: f.loadBalancerClass, Default: f.defaultClass,
		LeaveTaints: f.leaveTaints, IgnoreExcludeLabel: f.ignoreLabel,
	}
}

// check says what is missing or cannot be, with the setting to mend.
func (f *flags) check() error {
	if f.node == "" {
		return errors.New("no node name: set --node-name, or NODE_NAME from spec.nodeName of the pod")
	}
	if f.namespace == "" {
		return errors.New("no namespace: set --namespace, or POD_NAMESPACE from metadata.namespace of the pod")
	}
	var err error
	if f.exclude, err = regexp.Compile(f.excludeInterfaces); err != nil {
		return fmt.Errorf("read --exclude-interfaces: %w", err)
	}
	return nil
}
