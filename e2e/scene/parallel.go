package scene

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// parallelWriters is how many requests are under way at a time: more than one processor answers, and few enough that the
// API server queues none of them away.
const parallelWriters = 40

// parallel makes many Services of one manifest at the same time, named PREFIX-0, PREFIX-1 and so on. kubectl would make
// them one after the other.
func parallel(s *Scene, args []string) (string, error) {
	const usage = "parallel COUNT PREFIX FILE"
	if len(args) != 3 {
		return "", usageError{usage}
	}
	count, err := strconv.Atoi(args[0])
	if err != nil || count < 1 {
		return "", usageError{usage}
	}
	text, err := os.ReadFile(s.ts.MkAbs(args[2]))
	if err != nil {
		return "", usageError{usage + ": " + err.Error()}
	}
	var template corev1.Service
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text)).Decode(&template); err != nil {
		return "", usageError{usage + ": " + err.Error()}
	}
	group, ctx := errgroup.WithContext(s.ctx)
	group.SetLimit(parallelWriters)
	for i := range count {
		service := template.DeepCopy()
		service.Name = fmt.Sprintf("%s-%d", args[1], i)
		group.Go(func() error {
			_, err := s.lab.API().CoreV1().Services(s.namespace).Create(ctx, service, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("make Service %s: %w", service.Name, err)
			}
			return nil
		})
	}
	return "", group.Wait()
}
