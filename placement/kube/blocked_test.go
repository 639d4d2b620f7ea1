package kube_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/placement/delivery"
)

// The cluster adds the overhead of a RuntimeClass to pods, and counts it. A workload that does not state it exceeds the quota,
// and says so.
func aRuntimeClassTakesMore(t *testing.T, f *fixture) {
	f.must(t, f.admin.Create(t.Context(), &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "heavy", Overhead: &nodev1.Overhead{PodFixed: amounts("cpu", "100m", "memory", "8Mi")},
	}))
	const plan = `
components:
- name: web
  manifests:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      strategy: {type: Recreate}
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec: &pod {runtimeClassName: heavy, containers: [{name: c, image: i, resources: {limits: {cpu: 10m, memory: 16Mi}}}]}
- name: db
  manifests:
  - apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: db}
    spec:
      serviceName: db
      selector: {matchLabels: {app: db}}
      template:
        metadata: {labels: {app: db}}
        spec: *pod
`
	d := withWorkload(t, plan, "")
	eventually(t, "both say that they exceed the quota", func(ctx context.Context) (bool, error) {
		err := f.driver().Deliver(ctx, d)
		var pending *delivery.PendingError
		if !errors.As(err, &pending) {
			return false, err
		}
		d.Applied = pending.Applied
		return pending.Consumer == "web: 0 of 1 pods ready: FailedCreate; db: 0 of 1 pods ready: FailedCreate" &&
			strings.Count(pending.Detail, "is forbidden: exceeded quota: sluice, requested: ") == 2, nil
	})
	f.runs(t, running(t, d, strings.Replace(plan, "runtimeClassName: heavy", "runtimeClassName: heavy, overhead: {cpu: 100m, memory: 8Mi}", 1), ""))
}
