package sinks_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// TestKubernetesEvents: on a hub that is a cluster, each transition is one Event of its resource, also if Sluice starts
// again in between and delivers it twice.
func TestKubernetesEvents(t *testing.T) {
	cluster := controlplane.Start(t, controlplane.Options{Name: "hub", APIServerOnly: true})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, cluster.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := hub.Start(t.Context(), hub.Options{Kubeconfig: kubeconfig, InstallCRDs: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorldOn(t, h.Config, "default")
	sink := &v1alpha1.EventSink{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "events"}, Spec: v1alpha1.EventSinkSpec{KubernetesEvents: true}}
	w.must(w.hub.Create(t.Context(), sink))

	one := w.order("cf", "one")
	w.happen(one, placed)
	v1alpha1.AddEvent(&one.Status.Events, v1alpha1.Event{Type: v1alpha1.EventFailed, At: metav1.NowMicro(), Operation: v1alpha1.OperationProvision, Clusters: []string{"eu"}, Message: strings.Repeat("ü", 600)})
	w.must(w.hub.Status().Update(t.Context(), one))
	want := []string{"Normal Ordered/Ordered: on eu", "Normal Placed/Placed: on eu", "Warning provision/Failed: on eu; "}
	w.until(func() string { return w.has(one, want) })
	w.is(sink, metav1.ConditionTrue, "accepts")

	w.stop()
	w.deliver()
	w.remove(one)
	want = append(want, "Normal Removed/Removed: ")
	w.until(func() string { return w.has(one, want) })
}

// has returns what is missing of the Kubernetes Events of an instance, the oldest first; each is given by the beginning.
func (w *world) has(of *v1alpha1.ServiceInstance, want []string) (missing string) {
	w.Helper()
	var all eventsv1.EventList
	w.must(w.hub.List(w.Context(), &all, client.InNamespace(w.namespace)))
	slices.SortFunc(all.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	var got []string
	for _, e := range all.Items {
		if e.ReportingController != "sluice.dev/sluice" {
			continue
		}
		is := corev1.ObjectReference{APIVersion: "sluice.dev/v1alpha1", Kind: "ServiceInstance", Namespace: of.Namespace, Name: of.Name, UID: of.UID}
		if e.Regarding != is || len(e.Note) > 1024 {
			w.Errorf("the event %s is about %v, with a note of %d bytes", e.Name, e.Regarding, len(e.Note))
		}
		got = append(got, fmt.Sprintf("%s %s/%s: %s", e.Type, e.Action, e.Reason, e.Note))
	}
	if len(got) > len(want) {
		w.Fatalf("the Events are %q, want no more than %q", got, want)
	}
	for i := range want {
		if i >= len(got) || !strings.HasPrefix(got[i], want[i]) {
			return fmt.Sprintf("the Events are %q, want %q", got, want)
		}
	}
	return ""
}

// TestNoKubernetesEvents: on a hub without Events, the sink says so, and what to do about it.
func TestNoKubernetesEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sink := &v1alpha1.EventSink{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "events"}, Spec: v1alpha1.EventSinkSpec{KubernetesEvents: true}}
	w.must(w.hub.Create(t.Context(), sink))
	w.order("cf", "one")
	w.is(sink, metav1.ConditionFalse, "this hub has no Events (events.k8s.io/v1): remove the sink")
}
