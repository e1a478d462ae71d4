package scene

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// parallelWriters is how many requests are under way at a time: more than one processor answers, and few enough that the
// API server queues none of them away.
const parallelWriters = 40

const parallelUsage = "parallel COUNT PREFIX FILE [COMMAND...]"

// parallel makes many Services of one manifest at the same time, named PREFIX-0, PREFIX-1 and so on. kubectl would make
// them one after the other. A command that follows is run when half of them are made, while the others are being made.
func parallel(s *Scene, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError{parallelUsage}
	}
	count, err := strconv.Atoi(args[0])
	if err != nil || count < 1 {
		return "", usageError{parallelUsage}
	}
	template, err := readService(s.ts.MkAbs(args[2]))
	if err != nil {
		return "", usageError{parallelUsage + ": " + err.Error()}
	}
	half := func() (string, error) { return "", nil }
	if line := args[3:]; len(line) > 0 {
		run := commands()[line[0]]
		if run == nil {
			return "", usageError{parallelUsage + ": there is no command " + line[0]}
		}
		half = func() (string, error) { return run(s, line[1:]) }
	}
	return s.createAll(count, args[1], template, half)
}

func readService(path string) (*corev1.Service, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	template := &corev1.Service{}
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)).Decode(template); err != nil {
		return nil, fmt.Errorf("read the Service of %s: %w", path, err)
	}
	return template, nil
}

// createAll makes the Services, and runs half once when half of them are made. It answers what that prints.
func (s *Scene) createAll(count int, prefix string, template *corev1.Service, half func() (string, error)) (stdout string, err error) {
	var made atomic.Int64
	group, ctx := errgroup.WithContext(s.ctx)
	group.SetLimit(parallelWriters)
	for i := range count {
		service := template.DeepCopy()
		service.Name = fmt.Sprintf("%s-%d", prefix, i)
		group.Go(func() error {
			_, err := s.lab.API().CoreV1().Services(s.namespace).Create(ctx, service, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("make Service %s: %w", service.Name, err)
			}
			if made.Add(1) == int64((count+1)/2) {
				stdout, err = half()
			}
			return err
		})
	}
	err = group.Wait()
	return stdout, err
}
