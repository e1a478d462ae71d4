package l2_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	"github.com/berthlb/berth/speaker/internal/wire/wiretest"
)

// askerLink and askerCount make a child of a test the one who asks, so that its work is not counted as the responder's.
const (
	askerLink  = "BERTH_TEST_ASKER_LINK"
	askerCount = "BERTH_TEST_ASKER_COUNT"
)

func TestMain(m *testing.M) {
	if link := os.Getenv(askerLink); link != "" {
		if err := ask(link, os.Getenv(askerCount)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// ask asks for the address on a link until it has had so many answers, 32 questions under way at a time.
func ask(link, count string) error {
	answers, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	ifi, err := net.InterfaceByName(link)
	if err != nil {
		return err
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ARP, nil)
	if err != nil {
		return err
	}
	question, err := questionFrame(ifi.HardwareAddr)
	if err != nil {
		return err
	}
	for sent, got := 0, 0; got < answers; {
		for ; sent < answers && sent-got < 32; sent++ {
			if _, err := conn.WriteTo(question, &packet.Addr{HardwareAddr: ethernet.Broadcast}); err != nil {
				return err
			}
		}
		switch err := answered(conn); {
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
func answered(conn *packet.Conn) error {
	const operation = 21 // the low byte of the operation in the frame
	buffer := make([]byte, 128)
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	for {
		n, _, err := conn.ReadFrom(buffer)
		if err != nil || n > operation && buffer[operation] == byte(arp.OperationReply) {
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
func askFrom(b *testing.B, ns *wiretest.Namespace, link string, count int) (used time.Duration) {
	b.Helper()
	ns.Do(func() error {
		command := exec.CommandContext(b.Context(), "/proc/self/exe")
		command.Env = []string{askerLink + "=" + link, askerCount + "=" + strconv.Itoa(count)}
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
	b.Run("responder", func(b *testing.B) {
		one, other := wiretest.NewNamespace(b), wiretest.NewNamespace(b)
		wiretest.Pair(one, "eth0", other, "peer0")
		one.AddAddress("eth0", subnet)
		n := newNode(b, one)
		n.claim(nil, vip)
		tap := other.Tap("peer0")
		awaitReply(b, tap, vip, 2*time.Second)
		tap.Close()
		b.ResetTimer()
		before := cpu(b)
		asker := askFrom(b, other, "peer0", b.N)
		used := cpu(b) - before
		b.ReportMetric(perAnswer(b, used), "µs-cpu/answer")
		b.ReportMetric(perAnswer(b, used+asker), "µs-cpu-both-ends/answer")
	})
	b.Run("kernel", func(b *testing.B) {
		one, other := wiretest.NewNamespace(b), wiretest.NewNamespace(b)
		wiretest.Pair(one, "eth0", other, "peer0")
		one.AddAddress("eth0", netip.PrefixFrom(vip, 24))
		b.ResetTimer()
		asker := askFrom(b, other, "peer0", b.N)
		b.ReportMetric(perAnswer(b, asker), "µs-cpu-both-ends/answer")
	})
}

func perAnswer(b *testing.B, used time.Duration) float64 {
	b.Helper()
	return float64(used.Microseconds()) / float64(b.N)
}
