package scene

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthlb/berth/e2e/lab"
	"github.com/berthlb/berth/e2e/lab/holdings"
)

// watchHoldings follows what the scene's Services hold. At the end it prints every address that was moved, taken away or
// held by two at any moment, and a line that counts.
func watchHoldings(s *Scene, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError{"holdings start|stop"}
	}
	switch args[0] {
	case "start":
		if s.holdings != nil {
			return "", errors.New("they are watched already: holdings stop ends it")
		}
		watch, err := holdings.Start(s.ctx, s.lab.API().CoreV1().Services(s.namespace))
		s.holdings = watch
		return "", err
	case "stop":
		if s.holdings == nil {
			return "", errors.New("nobody watches: holdings start begins it")
		}
		account, err := s.holdings.Stop(s.ctx)
		s.holdings = nil
		if err != nil {
			return "", err
		}
		return strings.Join(account.Lines(), "\n") + "\n", nil
	default:
		return "", usageError{"holdings start|stop"}
	}
}

const restartUsage = "restart CONTROLLER COUNT stop|kill FILE"

// restart restarts a controller many times. Each time a Service of the manifest is made, gets an address and is deleted:
// by then the controller has decided about all that were there, since it serves the older first.
func restart(s *Scene, args []string) (string, error) {
	if len(args) != 4 {
		return "", usageError{restartUsage}
	}
	count, err := strconv.Atoi(args[1])
	if err != nil || count < 1 {
		return "", usageError{restartUsage}
	}
	template, err := readService(s.ts.MkAbs(args[3]))
	if err != nil {
		return "", usageError{restartUsage + ": " + err.Error()}
	}
	begin := time.Now()
	for range count {
		p, err := s.lab.ControllerProcess(args[0])
		if err != nil {
			return "", err
		}
		if _, err := handle(p, args[2], restartUsage); err != nil {
			return "", err
		}
		if err := s.lab.StartController(s.ctx, args[0], lab.Extra{}); err != nil {
			return "", err
		}
		if err := s.served(template); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d restarts in %s\n", count, time.Since(begin).Round(time.Millisecond)), nil
}

// serveLimit is how long a new Service may wait: a lease that was not given back has to run out first.
const serveLimit = 15 * time.Second

// served makes a Service, waits until it has an address, and deletes it.
func (s *Scene) served(template *corev1.Service) error {
	ctx, cancel := context.WithTimeout(s.ctx, serveLimit)
	defer cancel()
	services := s.lab.API().CoreV1().Services(s.namespace)
	made, err := services.Create(ctx, template, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make Service %s: %w", template.Name, err)
	}
	for len(made.Status.LoadBalancer.Ingress) == 0 {
		if err := s.pause(tryEvery); err != nil {
			return err
		}
		if made, err = services.Get(ctx, template.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("wait for the address of Service %s: %w", template.Name, err)
		}
	}
	if err := services.Delete(ctx, template.Name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete Service %s: %w", template.Name, err)
	}
	return nil
}

// restore deletes the scene's Services and makes them anew, all at once, with the statuses they had: as from a backup,
// with new UIDs and equal ages.
func restore(s *Scene, args []string) (string, error) {
	if len(args) != 0 {
		return "", usageError{"restore"}
	}
	services := s.lab.API().CoreV1().Services(s.namespace)
	backup, err := services.List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list Services: %w", err)
	}
	for i := range backup.Items {
		if err := services.Delete(s.ctx, backup.Items[i].Name, metav1.DeleteOptions{}); err != nil {
			return "", fmt.Errorf("delete Service %s: %w", backup.Items[i].Name, err)
		}
	}
	group, ctx := errgroup.WithContext(s.ctx)
	group.SetLimit(parallelWriters)
	for i := range backup.Items {
		group.Go(func() error { return s.remake(ctx, &backup.Items[i]) })
	}
	return fmt.Sprintf("%d Services\n", len(backup.Items)), group.Wait()
}

// remake makes a Service as it was.
func (s *Scene) remake(ctx context.Context, was *corev1.Service) error {
	services := s.lab.API().CoreV1().Services(s.namespace)
	fresh := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: was.Name, Labels: was.Labels, Annotations: was.Annotations}, Spec: was.Spec,
	}
	made, err := services.Create(ctx, fresh, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make Service %s: %w", was.Name, err)
	}
	made.Status = was.Status
	if _, err := services.UpdateStatus(ctx, made, metav1.UpdateOptions{FieldManager: "backup"}); err != nil {
		return fmt.Errorf("restore the status of Service %s: %w", was.Name, err)
	}
	return nil
}
