package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// turnEvery is how often a waiting speaker looks whether its turn has come.
const turnEvery = 20 * time.Millisecond

// errTaken says that another speaker of this node has the turn.
var errTaken = errors.New("another speaker works on this node")

// turn is the right to work on a node. While one speaker replaces another there are two: the one that has the turn has
// the ports and announces, the other waits. It is an abstract unix socket (unix(7)): its name is known in one network
// namespace, which is the node's, and the kernel frees it however its holder ends.
type turn struct{ net.Listener }

// takeTurn takes the turn of that name if nobody has it, and answers errTaken if another speaker has.
func takeTurn(ctx context.Context, name string) (turn, error) {
	held, err := bindTurn(ctx, name)
	if errors.Is(err, syscall.EADDRINUSE) {
		return turn{}, checkHolder(ctx, name)
	}
	return held, err
}

// turnName is the socket's name for the speakers of a node that gossip on a port. Speakers of other nodes may be in the same
// network namespace, as in the lab without namespaces, and work side by side. A node's name may be longer than a socket's.
func turnName(node string, gossipPort uint16) string {
	hash := sha256.Sum256([]byte(node))
	return fmt.Sprintf("@berth-speaker-%d-%x", gossipPort, hash[:8])
}

func bindTurn(ctx context.Context, name string) (turn, error) {
	held, err := (&net.ListenConfig{}).Listen(ctx, "unix", name)
	if err != nil {
		return turn{}, fmt.Errorf("take the node's turn (abstract socket %s): %w", name, err)
	}
	return turn{held}, nil
}

// checkHolder answers errTaken if the socket's holder may be a speaker: anybody on the node could take the name, and must
// not make a speaker wait for ever.
func checkHolder(ctx context.Context, name string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
	if err != nil {
		return errTaken // it ended just now, or begins: the next look will tell
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn() //nolint:forcetypeassert // that is what dialling "unix" answers
	if err != nil {
		return fmt.Errorf("ask who holds the node's turn: %w", err)
	}
	var holder *syscall.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) {
		holder, asked = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(err, asked); err != nil {
		return fmt.Errorf("ask who holds the node's turn: %w", err)
	}
	if int(holder.Uid) != os.Geteuid() {
		return fmt.Errorf("the abstract socket %s is held by process %d of user %d, which is no speaker: end it", name, holder.Pid, holder.Uid)
	}
	return errTaken
}

// awaitTurn waits until the speaker that this one replaces has ended.
func awaitTurn(ctx context.Context, name string) (turn, error) {
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	for {
		held, err := bindTurn(ctx, name)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return held, err
		}
		select {
		case <-ctx.Done():
			return turn{}, fmt.Errorf("wait for the node's turn: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
