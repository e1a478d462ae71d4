package wire

import (
	"net"
	"net/netip"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/internal/cluster"
)

func exclude() *regexp.Regexp { return regexp.MustCompile(DefaultExclude) }

// good is a device that can carry announcements.
func good(name string, index uint8) device {
	return device{name: name, index: int(index), mac: net.HardwareAddr{2, 0, 0, 0, 0, index}, ether: true, up: true}
}

func TestWhichLinksAreUsable(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*device)
		want   bool
	}{
		"up":          {reason: "an Ethernet link that is up is", change: func(*device) {}, want: true},
		"down":        {reason: "one that is down or has no carrier is not", change: func(d *device) { d.up = false }},
		"enslaved":    {reason: "nor one that is part of a bond or bridge", change: func(d *device) { d.enslaved = true }},
		"tunnel":      {reason: "nor one that is no Ethernet", change: func(d *device) { d.ether = false }},
		"InfiniBand":  {reason: "nor one with an address of 20 bytes", change: func(d *device) { d.mac = make([]byte, 20) }},
		"no address":  {reason: "nor one without", change: func(d *device) { d.mac = nil }},
		"zero":        {reason: "nor one whose address is not set", change: func(d *device) { d.mac = make([]byte, 6) }},
		"lo":          {reason: "the loopback link is not", change: func(d *device) { d.name = "lo" }},
		"veth1a2b":    {reason: "a pod's link is not", change: func(d *device) { d.name = "veth1a2b" }},
		"cali1":       {reason: "of whatever network", change: func(d *device) { d.name = "cali1" }},
		"cilium_host": {reason: "of whatever network", change: func(d *device) { d.name = "cilium_host" }},
		"kube-ipvs0":  {reason: "kube-proxy's link is not", change: func(d *device) { d.name = "kube-ipvs0" }},
		"docker0":     {reason: "Docker's bridge is not", change: func(d *device) { d.name = "docker0" }},
		"enp3s0f1":    {reason: "a card's link is", change: func(d *device) { d.name = "enp3s0f1" }, want: true},
		"bond0.100":   {reason: "a VLAN on a bond is", change: func(d *device) { d.name = "bond0.100" }, want: true},
		"br-lan":      {reason: "a bridge of the network team is", change: func(d *device) { d.name = "br-lan" }, want: true},
		"loc1":        {reason: "a name that only begins like lo is", change: func(d *device) { d.name = "loc1" }, want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := good("eth0", 1)
			c.change(&d)
			table := newTable(exclude())
			touched := table.setDevice(d)
			if got := len(table.links()) == 1; got != c.want || touched != c.want {
				t.Errorf("%s: usable %v, touched %v", c.reason, got, touched)
			}
		})
	}
}

func TestLinksAreSortedAndComplete(t *testing.T) {
	t.Parallel()
	table := newTable(exclude())
	table.setDevice(good("eth1", 1))
	table.setDevice(good("eth0", 2))
	for _, text := range []string{"192.0.2.7/24", "2001:db8::7/64", "fe80::9/64", "fe80::7/64", "fe80::8/64", "fe80::a/64", "fe80::b/64", "fe80::c/64", "192.0.2.8/24", "198.51.100.1/24"} {
		table.setAddress(2, netip.MustParsePrefix(text))
	}
	table.setAddress(1, netip.MustParsePrefix("2001:db8::9/64"))
	want := []cluster.Link{
		{
			Name: "eth0", Index: 2, MAC: [6]byte{2, 0, 0, 0, 0, 2}, IPv4: true,
			Subnets: []netip.Prefix{
				netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/64"),
				netip.MustParsePrefix("fe80::/64"),
			},
			LinkLocal: netip.MustParseAddr("fe80::7"), // of several always the same
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("198.51.100.1")},
		},
		{Name: "eth1", Index: 1, MAC: [6]byte{2, 0, 0, 0, 0, 1}, Subnets: []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}},
	}
	if diff := cmp.Diff(want, table.links(), cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

// TestWhatTouchesAUsableLink plays events in order; each says whether it touches a usable link.
func TestWhatTouchesAUsableLink(t *testing.T) {
	t.Parallel()
	table := newTable(exclude())
	address := netip.MustParsePrefix("192.0.2.7/24")
	eth0, down, pod := good("eth0", 1), good("eth0", 1), good("veth1", 2)
	down.up = false
	steps := []struct {
		what string
		do   func() bool
		want bool
	}{
		{"an address comes before its link", func() bool { return table.setAddress(1, address) }, false},
		{"the link comes", func() bool { return table.setDevice(eth0) }, true},
		{"the same again: its carrier may have come and gone", func() bool { return table.setDevice(eth0) }, true},
		{"its address is renewed", func() bool { return table.setAddress(1, address) }, false},
		{"it goes down", func() bool { return table.setDevice(down) }, true},
		{"its address goes while it is down", func() bool { return table.dropAddress(1, address) }, false},
		{"the address that is gone goes again", func() bool { return table.dropAddress(1, address) }, false},
		{"it comes up", func() bool { return table.setDevice(eth0) }, true},
		{"it gets an address", func() bool { return table.setAddress(1, address) }, true},
		{"it loses it", func() bool { return table.dropAddress(1, address) }, true},
		{"a pod comes", func() bool { return table.setDevice(pod) }, false},
		{"a pod goes", func() bool { return table.dropDevice(2) }, false},
		{"the link is deleted", func() bool { return table.dropDevice(1) }, true},
		{"it is deleted again", func() bool { return table.dropDevice(1) }, false},
	}
	for _, step := range steps {
		if got := step.do(); got != step.want {
			t.Errorf("%s: touched %v, want %v", step.what, got, step.want)
		}
	}
}

func TestAddressesInUse(t *testing.T) {
	t.Parallel()
	network := net.IPNet{IP: net.IP{192, 0, 2, 7}, Mask: net.CIDRMask(24, 32)}
	if address, ok := addressOf(network, unix.IFA_F_PERMANENT); !ok || address != netip.MustParsePrefix("192.0.2.7/24") {
		t.Errorf("read %s, in use %v", address, ok)
	}
	for name, flags := range map[string]int{"tentative": unix.IFA_F_TENTATIVE, "found to be another's": unix.IFA_F_DADFAILED} {
		if _, ok := addressOf(network, flags); ok {
			t.Errorf("an address that is %s counts as in use", name)
		}
	}
}
