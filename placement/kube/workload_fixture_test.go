package kube_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// shop is a workload of three components, one of them with a volume.
const shop = `
secrets: [{name: password}]
pullSecrets: [{registry: registry.example, username: ann, password: "${secrets.password}"}]
parameters: {motto: {type: string, default: hello}}
components:
- name: web
  ports: [{name: http, port: 80, containerPort: 8080}]
  container:
    image: sluice.dev/web:1
    env: {DB: "${components.db.host}", MOTTO: "${parameters.motto}"}
    replicas: 2
    resources: {cpu: 10m, memory: 16Mi}
- name: db
  ports: [{name: sql, port: 5432}]
  container:
    image: sluice.dev/db:1
    env: {PASSWORD: "${secrets.password}"}
    volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Mi}]
    resources: {cpu: 10m, memory: 16Mi}
- name: extra
  manifests:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: extra}, data: {motto: "${parameters.motto}"}}
`

// withWorkload returns a delivery of a new instance that runs a plan.
func withWorkload(t *testing.T, document, parameters string) delivery.Delivery {
	t.Helper()
	d := newDelivery(t)
	d.Instance.Namespace = "sluice"
	return running(t, d, document, parameters)
}

// running returns the delivery of the same instance with another plan. Its secrets stay.
func running(t *testing.T, d delivery.Delivery, document, parameters string) delivery.Delivery {
	t.Helper()
	plan := &v1alpha1.WorkloadPlan{}
	if err := yaml.UnmarshalStrict([]byte(document), plan); err != nil {
		t.Fatal(err)
	}
	var secrets workload.Secrets
	if d.Workload != nil {
		secrets = d.Workload.Secrets
	}
	secrets, _ = secrets.Complete(plan.Secrets)
	state := &v1alpha1.InstanceState{PlanID: "p"}
	if parameters != "" {
		state.Parameters = &runtime.RawExtension{Raw: []byte(parameters)}
	}
	footprint, err := workload.FootprintOf(plan, webChart(t), state.Raw(), 0)
	if err != nil {
		t.Fatal(err)
	}
	d.Placement.Reserved = footprint.Takes
	if d.Workload, err = workload.Of(plan, d.Instance, state, nil, secrets); err != nil {
		t.Fatal(err)
	}
	return d
}

// delivered delivers until nothing is waited for, and returns the last error that is no wait.
func (f *fixture) delivered(t *testing.T, d delivery.Delivery) error {
	t.Helper()
	var last error
	err := until(t, 100*time.Millisecond, 2*time.Minute, func(ctx context.Context) (bool, error) {
		last = f.driver().Deliver(ctx, d)
		var pending *delivery.PendingError
		if !errors.As(last, &pending) {
			return true, nil
		}
		d.Applied = pending.Applied
		return false, nil
	})
	if err != nil {
		t.Fatalf("still waiting: %v", last)
	}
	return last
}

func (f *fixture) runs(t *testing.T, d delivery.Delivery) {
	t.Helper()
	if err := f.delivered(t, d); err != nil {
		t.Fatal(err)
	}
	if err := f.driver().Observe(t.Context(), d); err != nil {
		t.Errorf("observe: %v", err)
	}
}

// volume makes a persistent volume for one claim: control planes have no provisioner.
func (f *fixture) volume(t *testing.T, name string) {
	t.Helper()
	f.volumeOf(t, name, "fast")
}

// volumeOf makes one of a class, for claims of 1Mi.
func (f *fixture) volumeOf(t *testing.T, name, class string) {
	t.Helper()
	err := f.admin.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class, Capacity: amounts("storage", "1Mi"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/" + name}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) get(t *testing.T, d delivery.Delivery, name string, into client.Object) {
	t.Helper()
	if err := f.admin.Get(t.Context(), key(namespaceOf(d), name), into); err != nil {
		t.Fatal(err)
	}
}
