package frames_test

import (
	"encoding/hex"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthlb/berth/e2e/lab/frames"
)

var (
	same = cmpopts.EquateComparable(netip.Addr{})
	one  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	all  = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestDecode(t *testing.T) {
	t.Parallel()
	v4, v6 := netip.MustParseAddr("172.30.0.200"), netip.MustParseAddr("fd00:30::200")
	for name, test := range map[string]struct {
		reason, raw string
		want        frames.Frame
		ok          bool
		gratuitous  bool
		text        string
	}{
		"ARPReply": {
			reason: "a reply names its sender",
			raw: "020000000064" + "020000000001" + "0806" + "0001080006040002" +
				"020000000001" + "ac1e00c8" + "020000000064" + "ac1e0064",
			want: frames.Frame{
				Source: one, Dest: net.HardwareAddr{2, 0, 0, 0, 0, 0x64}, Op: frames.Reply,
				Sender: v4, SenderMAC: one, Target: netip.MustParseAddr("172.30.0.100"),
			},
			ok: true, text: "reply 172.30.0.200 is-at 02:00:00:00:00:01",
		},
		"GratuitousRequest": {
			reason: "a request for its own address is an announcement",
			raw: "ffffffffffff" + "020000000001" + "0806" + "0001080006040001" +
				"020000000001" + "ac1e00c8" + "000000000000" + "ac1e00c8",
			want: frames.Frame{Source: one, Dest: all, Op: frames.Request, Sender: v4, SenderMAC: one, Target: v4},
			ok:   true, gratuitous: true, text: "request who-has 172.30.0.200 from 172.30.0.200 at 02:00:00:00:00:01",
		},
		"Advertisement": {
			reason: "an unsolicited advertisement with the override flag",
			raw: "333300000001" + "020000000001" + "86dd" + "6000000000203aff" +
				"fd000030000000000000000000000200" + "ff020000000000000000000000000001" +
				"8800000020000000" + "fd000030000000000000000000000200" + "0201020000000001",
			want: frames.Frame{
				Source: one, Dest: net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, Op: frames.Advertisement,
				Sender: v6, SenderMAC: one, Target: v6, Override: true,
			},
			ok: true, gratuitous: true, text: "na fd00:30::200 is-at 02:00:00:00:00:01",
		},
		"CutOff": {
			reason: "half a frame is none",
			raw:    "020000000064" + "020000000001" + "0806" + "00010800060400",
		},
		"HopLimit": {
			reason: "discovery that was forwarded is none (RFC 4861 section 7.1)",
			raw: "333300000001" + "020000000001" + "86dd" + "6000000000203afe" +
				"fd000030000000000000000000000200" + "ff020000000000000000000000000001" +
				"8800000020000000" + "fd000030000000000000000000000200" + "0201020000000001",
		},
		"IPv4": {reason: "other frames are not ours", raw: "020000000064" + "020000000001" + "0800" + "45000014"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := frames.Decode(unhex(t, test.raw))
			if ok != test.ok {
				t.Fatalf("%s: ok is %v", test.reason, ok)
			}
			if !ok {
				return
			}
			if diff := cmp.Diff(test.want, got, same); diff != "" {
				t.Errorf("%s:\n%s", test.reason, diff)
			}
			if got.Gratuitous() != test.gratuitous || got.String() != test.text {
				t.Errorf("%s: gratuitous %v, %q", test.reason, got.Gratuitous(), got)
			}
		})
	}
}

func TestQuestionsDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{4, 16}).Draw(t, "size")
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			addr, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), size, size).Draw(t, "address"))
			return addr
		})
		target, source := address.Draw(t, "target"), address.Draw(t, "source")
		got, ok := frames.Decode(frames.Ask(target, source, one))
		if !ok || got.Target != target || got.Sender != source || got.SenderMAC.String() != one.String() {
			t.Fatalf("asked who has %s from %s, read %v, %v", target, source, got, ok)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(frames.Ask(netip.MustParseAddr("172.30.0.1"), netip.MustParseAddr("172.30.0.2"), one))
	f.Add(frames.Ask(netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), one))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if frame, ok := frames.Decode(raw); ok && (!frame.Target.IsValid() || frame.Op == "") {
			t.Errorf("decoded %v without a target", frame)
		}
	})
}
