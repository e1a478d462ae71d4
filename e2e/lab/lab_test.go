package lab_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/build"
	"github.com/berthlb/berth/e2e/lab/sandbox"
)

func TestMain(m *testing.M) {
	lab.Dispatch()
	if _, inside := sandbox.Inside(); inside {
		os.Exit(m.Run())
	}
	code, err := outside()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func outside() (int, error) {
	if err := sandbox.FollowParent(); err != nil {
		return 0, err
	}
	choice, err := sandbox.Choose()
	if err != nil {
		return 0, err
	}
	programs, err := lab.Build(context.Background(), os.Stdout)
	if err != nil {
		return 0, err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return 0, err
	}
	return sandbox.Run(sandbox.Config{Rung: choice.Rung, Cache: cache, Env: programs.Environment()})
}

func TestLabStarts(t *testing.T) {
	programs, err := lab.ProgramsFromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if os.Getenv("KEEP") != "" {
		time.AfterFunc(15*time.Second, func() { exec.Command("cp", "-r", "/run/lab/lab-t/log", "/root/labs").Run() })
	}
	l, err := lab.Start(t.Context(), lab.Options{
		Name: "t", Nodes: 3, Programs: programs,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %s", time.Since(begin))
	if os.Getenv("KEEP") != "" {
		if err := l.CopyLogs("/root/labs"); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("all done after %s", time.Since(begin))
}
