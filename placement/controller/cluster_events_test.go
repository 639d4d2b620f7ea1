package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// What happens to a cluster is written with its status and counted, once for each change, and outlives the cluster.
func TestWhatHappensToAClusterIsWrittenWithItsStatus(t *testing.T) {
	m := newMemberWorld(t, placementtest.Node("n", nil))
	m.reconciler.Recorder = journal.NewRecorder((&catalog.Catalog{}).Names)
	m.look()
	m.inventory.Reserve(placement.Holding{Instance: "si-a", Held: map[string]placement.Resources{"eu": {corev1.ResourceCPU: 1000}}})
	change := func(set func(*v1alpha1.MemberClusterSpec)) {
		mc := m.look()
		set(&mc.Spec)
		m.must(m.hub.Update(t.Context(), mc))
	}
	change(func(spec *v1alpha1.MemberClusterSpec) { spec.Unschedulable = true })
	change(func(spec *v1alpha1.MemberClusterSpec) {
		spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}
	})
	m.look()
	m.inventory.Release("si-a")
	m.probe = errors.New("connection refused")
	for range 3 {
		m.look()
	}
	m.probe = nil
	for range 3 {
		m.look()
	}
	change(func(spec *v1alpha1.MemberClusterSpec) { spec.Unschedulable, spec.Taints = false, nil })
	mc := m.look()
	m.must(m.hub.Delete(t.Context(), mc))
	if _, err := m.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: m.key()}); err != nil {
		t.Fatal(err)
	}
	entries, err := journal.Read(t.Context(), m.hub, m.namespace, func(journal.Entry) bool { return true })
	m.must(err)
	var got []string
	for i, e := range entries {
		got = append(got, string(e.Type))
		if e.Kind != v1alpha1.KindMemberCluster || e.Name != "eu" || e.UID != mc.UID || e.Sequence != int64(i+1) || fmt.Sprint(e.Clusters) != "[eu]" || e.At.IsZero() {
			t.Errorf("the event %s is %+v", e.Type, e)
		}
		if e.Type == v1alpha1.EventLost && !strings.Contains(e.Message, "connection refused") {
			t.Errorf("it does not say why the cluster is lost: %q", e.Message)
		}
	}
	if want := []string{"Ready", "Cordoned", "Drained", "Lost", "Ready", "Uncordoned", "Removed"}; !slices.Equal(got, want) {
		t.Errorf("the events are %v, want %v", got, want)
	}
	counted := "# HELP sluice_events_total Events of instances, bindings, member clusters and peerings, by kind of resource, type of event, and service offering and plan if there are.\n# TYPE sluice_events_total counter\n"
	for what, count := range map[string]int{"Ready": 2, "Cordoned": 1, "Drained": 1, "Lost": 1, "Uncordoned": 1, "Removed": 1} {
		counted += fmt.Sprintf("sluice_events_total{kind=\"MemberCluster\",plan=\"\",service=\"\",type=%q} %d\n", what, count)
	}
	m.must(testutil.CollectAndCompare(m.reconciler.Recorder, strings.NewReader(counted), "sluice_events_total"))
}
