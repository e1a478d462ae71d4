package l2_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

// askerLink, askerCount and askerProtocol make a child of a test the one who asks, so that its work is not counted as the
// responder's.
const (
	askerLink     = "BERTH_TEST_ASKER_LINK"
	askerCount    = "BERTH_TEST_ASKER_COUNT"
	askerProtocol = "BERTH_TEST_ASKER_PROTOCOL"
)

// protocol is how an address is asked for.
type protocol struct {
	etherType int
	question  func(mac net.HardwareAddr) ([]byte, error)
	at        int  // of a byte in the frame
	answer    byte // that it has in an answer
}

func protocols() map[string]protocol {
	return map[string]protocol{
		"ARP": {etherType: unix.ETH_P_ARP, question: questionFrame, at: 21, answer: byte(arp.OperationReply)}, // its operation
		"NDP": {etherType: unix.ETH_P_IPV6, question: solicitation, at: 54, answer: wiretest.Advertisement},   // its type
	}
}

func TestMain(m *testing.M) {
	if link := os.Getenv(askerLink); link != "" {
		if err := ask(link, os.Getenv(askerCount), protocols()[os.Getenv(askerProtocol)]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// ask asks for the address on a link until it has had so many answers, 32 questions under way at a time.
func ask(link, count string, by protocol) error {
	answers, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	ifi, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	conn, err := packet.Listen(ifi, packet.Raw, by.etherType, nil)
	if err != nil {
		return err
	}
	question, err := by.question(ifi.HardwareAddr)
	if err != nil {
		return err
	}
	for sent, got := 0, 0; got < answers; {
		for ; sent < answers && sent-got < 32; sent++ {
			if _, err := conn.WriteTo(question, &packet.Addr{HardwareAddr: question[:6]}); err != nil {
				return err
			}
		}
		switch err := answered(conn, by); {
		case err == nil:
			got++
		case errors.Is(err, os.ErrDeadlineExceeded):
			sent = got // lost: ask again
		default:
			return err
		}
	}
	return nil
}

// answered waits for a reply.
func answered(conn *packet.Conn, by protocol) error {
	buffer := make([]byte, 128)
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil || n > by.at && buffer[by.at] == by.answer {
			return err
		}
	}
}

func questionFrame(mac net.HardwareAddr) ([]byte, error) {
	question, err := arp.NewPacket(arp.OperationRequest, mac, client, make(net.HardwareAddr, 6), vip)
	if err != nil {
		return nil, err
	}
	payload, err := question.MarshalBinary()
	if err != nil {
		return nil, err
	}
	frame := ethernet.Frame{Destination: ethernet.Broadcast, Source: mac, EtherType: ethernet.EtherTypeARP, Payload: payload}
	return frame.MarshalBinary()
}

// solicitation asks for the IPv6 address, from one that the kernel at the other end knows the way to.
func solicitation(mac net.HardwareAddr) ([]byte, error) {
	group, to := wiretest.SolicitedNode(vip6)
	return wiretest.Message{
		From: [6]byte(mac), To: to, Source: client6, Destination: group, HopLimit: 255,
		Type: wiretest.Solicitation, Target: vip6, LinkLayer: [6]byte(mac),
	}.Bytes(), nil
}

// cpu is the processor time this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// askFrom runs the asker in a namespace, and returns the processor time it used.
func askFrom(b *testing.B, ns *wiretest.Namespace, by string, count int) (used time.Duration) {
	b.Helper()
	ns.Do(func() error {
		command := exec.CommandContext(b.Context(), "/proc/self/exe")
		command.Env = []string{askerLink + "=peer0", askerProtocol + "=" + by, askerCount + "=" + strconv.Itoa(count)}
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("ask: %w: %s", err, output)
		}
		used = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
		return nil
	})
	return used
}

// BenchmarkAnswer measures the processor time of an answer over a veth pair: that of this process alone, and that of both
// ends, beside what both need if the kernel answers for an address of its own.
func BenchmarkAnswer(b *testing.B) {
	for by, address := range map[string]netip.Addr{"ARP": vip, "NDP": vip6} {
		b.Run(by+"/responder", func(b *testing.B) {
			one, other := benchPair(b)
			one.AddAddress("eth0", subnet)
			one.AddAddress("eth0", subnet6)
			n := newNode(b, one)
			n.claim(nil, address)
			n.awaitBench(b, address)
			b.ResetTimer()
			before := cpu(b)
			asker := askFrom(b, other, by, b.N)
			used := cpu(b) - before
			b.ReportMetric(perAnswer(b, used), "µs-cpu/answer")
			b.ReportMetric(perAnswer(b, used+asker), "µs-cpu-both-ends/answer")
		})
		b.Run(by+"/kernel", func(b *testing.B) {
			one, other := benchPair(b)
			one.AddAddress("eth0", netip.PrefixFrom(address, address.BitLen()*3/4))
			b.ResetTimer()
			asker := askFrom(b, other, by, b.N)
			b.ReportMetric(perAnswer(b, asker), "µs-cpu-both-ends/answer")
		})
	}
}

// benchPair is two namespaces with a link between them that can use its IPv6 addresses at once.
func benchPair(b *testing.B) (one, other *wiretest.Namespace) {
	b.Helper()
	one, other = wiretest.NewNamespace(b), wiretest.NewNamespace(b)
	one.WithoutDAD()
	wiretest.Pair(one, "eth0", other, "peer0")
	return one, other
}

// awaitBench waits until the node answers for the address.
func (n *node) awaitBench(b *testing.B, address netip.Addr) {
	b.Helper()
	for end := time.Now().Add(5 * time.Second); !slices.Equal(n.responder.Have(), []netip.Addr{address}); {
		if time.Now().After(end) {
			b.Fatalf("the node does not answer for %s", address)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func perAnswer(b *testing.B, used time.Duration) float64 {
	b.Helper()
	return float64(used.Microseconds()) / float64(b.N)
}
