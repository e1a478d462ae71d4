package wire

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/arp"
	"github.com/mdlayher/ndp"
)

func addressesOf(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func TestSpans(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		addresses []netip.Addr
		most      int
		want      []string
	}{
		"none": {reason: "no addresses, no spans", most: 3},
		"joined": {
			reason: "adjoining ones are one span, in whatever order", most: 3,
			addresses: addressesOf("192.0.2.3", "192.0.2.1", "192.0.2.2"), want: []string{"192.0.2.1-192.0.2.3"},
		},
		"twice": {
			reason: "one given twice counts once", most: 3,
			addresses: addressesOf("192.0.2.1", "192.0.2.1"), want: []string{"192.0.2.1-192.0.2.1"},
		},
		"IPv6": {
			reason: "of IPv6 addresses the last 32 bits count", most: 3,
			addresses: addressesOf("2001:db8::c000:201", "2001:db8:7::c000:202"), want: []string{"192.0.2.1-192.0.2.2"},
		},
		"too many": {
			reason: "the closest are joined", most: 2,
			addresses: addressesOf("192.0.2.1", "192.0.2.3", "192.0.2.200", "198.51.100.1"),
			want:      []string{"192.0.2.1-192.0.2.200", "198.51.100.1-198.51.100.1"},
		},
		"ends": {
			reason: "the first and the last address there are", most: 3, addresses: addressesOf("255.255.255.255", "0.0.0.0"),
			want: []string{"0.0.0.0-0.0.0.0", "255.255.255.255-255.255.255.255"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, s := range spansOf(c.addresses, c.most) {
				got = append(got, number(s.from).String()+"-"+number(s.to).String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// number is an address from its number.
func number(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

// TestSpansProperties: never more than allowed, all addresses in, and exact as long as that suffices.
func TestSpansProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.Uint32Range(1000, 1100)).Draw(t, "numbers")
		most := rapid.IntRange(1, 20).Draw(t, "most")
		var list []netip.Addr
		for _, n := range numbers {
			list = append(list, number(n))
		}
		spans := spansOf(list, most)
		if len(spans) > most {
			t.Fatalf("%d spans, at most %d may be", len(spans), most)
		}
		exact := spansOf(list, 1000)
		if want := min(len(exact), most); len(spans) != want {
			t.Fatalf("the spans %v are fewer than need be, %d would do", spans, want)
		}
		if len(exact) <= most && !slices.Equal(spans, exact) {
			t.Fatalf("the spans %v take in more than they need to: %v", spans, exact)
		}
		for _, n := range numbers {
			if !slices.ContainsFunc(spans, func(s span) bool { return s.from <= n && n <= s.to }) {
				t.Fatalf("%d is in none of %v", n, spans)
			}
		}
		if !slices.IsSortedFunc(spans, func(a, b span) int { return int(a.from) - int(b.from) }) {
			t.Fatalf("not sorted: %v", spans)
		}
	})
}

// frame is an ARP frame as a socket sees it.
func frame(t rapid.TB, op arp.Operation, from, to netip.Addr) []byte {
	t.Helper()
	bytes, err := frameOf(op, party{[6]byte{2, 1}, from}, party{[6]byte{}, to}, [6]byte{2, 9})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestFilterAgainstASet runs the filter over random frames, and compares with looking the addresses up.
func TestFilterAgainstASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint32{0, 1 << 31, 1<<32 - 3000}).Draw(t, "base") // both sides of the sign bit
		some := rapid.Uint32Range(base, base+2000)
		watched := rapid.SliceOfN(some, 1, 600).Draw(t, "watched")
		var list []netip.Addr
		for _, n := range watched {
			list = append(list, number(n))
		}
		vm, err := bpf.NewVM(choose(spansOf(list, 1000)))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			source, target := number(some.Draw(t, "source")), number(some.Draw(t, "target"))
			op := rapid.SampledFrom([]arp.Operation{arp.OperationRequest, arp.OperationReply, 3}).Draw(t, "operation")
			got, err := vm.Run(frame(t, op, source, target))
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Contains(list, source) || op == arp.OperationRequest && slices.Contains(list, target)
			if (got > 0) != want {
				t.Fatalf("operation %d from %s for %s: passed %v, want %v", op, source, target, got > 0, want)
			}
		}
	})
}

func TestFilterRefusesOtherForms(t *testing.T) {
	t.Parallel()
	vm, err := bpf.NewVM(choose(spansOf(addressesOf("192.0.2.10"), 10)))
	if err != nil {
		t.Fatal(err)
	}
	good := frame(t, arp.OperationRequest, netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("192.0.2.10"))
	cases := map[string]struct {
		reason string
		at     int
		value  byte
		short  int // this many bytes of it only
		want   bool
	}{
		"good":          {reason: "a request for a watched address passes", at: 15, value: 1, want: true},
		"hardware":      {reason: "hardware type 6 (IEEE 802) is not ours", at: 15, value: 6},
		"protocol":      {reason: "nor is another protocol than IPv4", at: 16, value: 0x86},
		"lengths":       {reason: "nor a hardware address of 8 bytes", at: 18, value: 8},
		"address bytes": {reason: "nor a protocol address of 16", at: 19, value: 16},
		"truncated":     {reason: "a frame that ends before the target's address is dropped", at: 15, value: 1, short: 41},
		"empty":         {reason: "so is one that is hardly there", at: 15, value: 1, short: 16},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bytes := slices.Clone(good)
			bytes[c.at] = c.value
			if c.short > 0 {
				bytes = bytes[:c.short]
			}
			n, err := vm.Run(bytes)
			if err != nil {
				t.Fatal(err)
			}
			if (n > 0) != c.want {
				t.Errorf("%s: passed %v", c.reason, n > 0)
			}
		})
	}
}

// TestFilterOfNDPAgainstASet is the same for neighbour discovery.
func TestFilterOfNDPAgainstASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]uint32{0, 1 << 31, 1<<32 - 3000}).Draw(t, "base")
		some := rapid.Custom(func(t *rapid.T) netip.Addr {
			address := [16]byte{0x20, 1, 0xd, 0xb8}
			binary.BigEndian.PutUint32(address[12:], rapid.Uint32Range(base, base+2000).Draw(t, "last"))
			return netip.AddrFrom16(address)
		})
		list := rapid.SliceOfN(some, 1, 600).Draw(t, "watched")
		vm, err := bpf.NewVM(chooseND(spansOf(list, 1000)))
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			source, target := some.Draw(t, "source"), some.Draw(t, "target")
			asks := rapid.Bool().Draw(t, "asks")
			var message ndp.Message = &ndp.NeighborAdvertisement{TargetAddress: target}
			if asks {
				message = &ndp.NeighborSolicitation{TargetAddress: target}
			}
			raw, err := frameND(message, party{[6]byte{2, 1}, source}, party{[6]byte{2, 9}, netip.IPv6LinkLocalAllNodes()})
			if err != nil {
				t.Fatal(err)
			}
			got, err := vm.Run(raw)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Contains(list, target) || asks && slices.Contains(list, source)
			if (got > 0) != want {
				t.Fatalf("asks %v from %s for %s: passed %v, want %v", asks, source, target, got > 0, want)
			}
		}
	})
}

// FuzzParse feeds anything to what reads frames: it does not panic, and agrees with the filter about the form.
func FuzzParse(f *testing.F) {
	bytes, err := frameOf(arp.OperationRequest, party{[6]byte{2, 1}, number(1)}, party{[6]byte{}, number(2)}, [6]byte{2, 9})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes)
	f.Add(bytes[:frameLength])
	f.Add([]byte{})
	all, err := bpf.NewVM(choose([]span{{0, 1<<32 - 1}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		sender, target, ok := parse(bytes)
		passes, err := all.Run(bytes)
		if err != nil {
			t.Fatal(err)
		}
		if ok && !sender.address.Is4() || target.IsValid() && !target.Is4() {
			t.Fatalf("read %v and %v", sender, target)
		}
		if want := passes > 0 && isHost(sender.mac); len(bytes) >= frameLength && want != ok {
			t.Fatalf("the filter passes %d bytes of a frame that was read: %v", passes, ok)
		}
	})
}

// FuzzParseND does the same for neighbour discovery: what is read has passed the filter, and is of a host about one.
func FuzzParseND(f *testing.F) {
	us, them := party{[6]byte{2, 1}, netip.MustParseAddr("2001:db8::1")}, party{[6]byte{2, 9}, netip.MustParseAddr("2001:db8::9")}
	for _, message := range []ndp.Message{
		&ndp.NeighborSolicitation{TargetAddress: them.address},
		&ndp.NeighborSolicitation{TargetAddress: them.address, Options: []ndp.Option{
			ndp.NewNonce(), &ndp.LinkLayerAddress{Direction: ndp.Source, Addr: us.mac[:]},
		}},
		&ndp.NeighborAdvertisement{TargetAddress: us.address, Override: true},
		&ndp.RouterSolicitation{},
	} {
		bytes, err := frameND(message, us, them)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
		f.Add(bytes[:len(bytes)-1])
	}
	all, err := bpf.NewVM(chooseND([]span{{0, 1<<32 - 1}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		if len(bytes) >= endTarget { // nobody but us writes right checksums by chance
			length := min(int(binary.BigEndian.Uint16(bytes[offPayloadLength:])), len(bytes)-endIPv6)
			bytes[56], bytes[57] = 0, 0
			from, to := netip.AddrFrom16([16]byte(bytes[offSource:])), netip.AddrFrom16([16]byte(bytes[offDestination:]))
			binary.BigEndian.PutUint16(bytes[56:], checksum(from, to, bytes[endIPv6:endIPv6+max(length, 4)]))
		}
		sender, target, ok := parseND(bytes)
		passes, err := all.Run(bytes)
		if err != nil {
			t.Fatal(err)
		}
		if ok && (passes == 0 || !isHost(sender.mac) || !sender.address.Is6() || target.IsValid() && !isUnicast(target)) {
			t.Fatalf("read %v and %v, the filter passes %d bytes", sender, target, passes)
		}
		if !ok && (target.IsValid() || sender != (party{})) {
			t.Fatalf("refused, and yet there are %v and %v", sender, target)
		}
	})
}

// FuzzReception feeds anything to what reads the kernel's control messages: it does not panic, and a time that it gives is
// one.
func FuzzReception(f *testing.F) {
	f.Add([]byte{})
	f.Add(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint32(
		binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint64(nil, 32), unix.SOL_SOCKET), unix.SO_TIMESTAMPNS), 1))
	f.Fuzz(func(t *testing.T, control []byte) {
		if about, err := receptionOf(control); err == nil && about.at.IsZero() {
			t.Fatal("no time, and no error")
		}
	})
}

// TestTheLargestFilterFits checks that the kernel takes the program for as many spans as there may be.
func TestTheLargestFilterFits(t *testing.T) {
	t.Parallel()
	var list []netip.Addr
	for n := range uint32(3 * maxSpans) {
		list = append(list, number(3<<30+2*n))
	}
	spans := spansOf(list, maxSpans)
	if len(spans) != maxSpans {
		t.Fatalf("%d spans, want %d", len(spans), maxSpans)
	}
	program, err := bpf.Assemble(filter(spans))
	if err != nil {
		t.Fatal(err)
	}
	if len(program) > 4096 {
		t.Errorf("the program has %d instructions, the kernel takes 4,096", len(program))
	}
	program, err = bpf.Assemble(filterND(spans))
	if err != nil {
		t.Fatal(err)
	}
	if len(program) > 4096 {
		t.Errorf("that for neighbour discovery has %d instructions", len(program))
	}
}
