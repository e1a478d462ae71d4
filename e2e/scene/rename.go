package scene

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const renameUsage = "rename OLD FILE [-delete-first]"

// renameApart is how far apart the two requests of a rename are: kubectl would need ten times as long to start.
const renameApart = 10 * time.Millisecond

// rename does what an upgrade of a chart does that calls a Service by another name: it makes the one of the file and
// deletes the old one, in this order or in the other.
func rename(s *Scene, args []string) (string, error) {
	if len(args) < 2 || len(args) > 3 || len(args) == 3 && args[2] != "-delete-first" {
		return "", usageError{renameUsage}
	}
	fresh, err := readService(s.ts.MkAbs(args[1]))
	if err != nil {
		return "", usageError{renameUsage + ": " + err.Error()}
	}
	services := s.lab.API().CoreV1().Services(s.namespace)
	steps := []func() error{
		func() error {
			_, err := services.Create(s.ctx, fresh, metav1.CreateOptions{})
			return err
		},
		func() error { return services.Delete(s.ctx, args[0], metav1.DeleteOptions{}) },
	}
	if len(args) == 3 {
		steps[0], steps[1] = steps[1], steps[0]
	}
	if err := steps[0](); err != nil {
		return "", fmt.Errorf("rename Service %s to %s: %w", args[0], fresh.Name, err)
	}
	if err := s.pause(renameApart); err != nil {
		return "", err
	}
	if err := steps[1](); err != nil {
		return "", fmt.Errorf("rename Service %s to %s: %w", args[0], fresh.Name, err)
	}
	return "", nil
}
