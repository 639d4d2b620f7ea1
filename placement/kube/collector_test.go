package kube_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
)

// collector of a hub that no other test uses, so that tests do not collect from
// each other.
func (f *fixture) collector(hub string) *kube.Collector {
	return &kube.Collector{Live: f.hub, Connections: f.connections, Namespace: f.hubNamespace, Hub: hub}
}

func (f *fixture) deliverFor(t *testing.T, hub string, d delivery.Delivery) {
	t.Helper()
	driver := f.driver()
	driver.Hub = hub
	if err := driver.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// commit creates the delivery's instance in the hub.
func (f *fixture) commit(t *testing.T, d delivery.Delivery) {
	t.Helper()
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.hubNamespace, Name: d.Instance.Name},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: "platform-1", InstanceID: t.Name(), ServiceID: "service-1", Desired: v1alpha1.InstanceState{PlanID: "plan-1"},
		},
	}
	if err := f.hub.Create(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
}

// account creates what the binding controller would.
func (f *fixture) account(t *testing.T, hub, namespace, binding string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: binding, Labels: map[string]string{
		v1alpha1.LabelHub: hub, v1alpha1.LabelBinding: binding,
	}}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.MemberRole("view")}},
	} {
		if err := f.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func names(remnants []kube.Remnant) []string {
	var out []string
	for _, r := range remnants {
		out = append(out, r.Cluster+" "+r.Kind+" "+r.Namespace+"/"+r.Name)
	}
	return out
}

func theCollectorRemoves(t *testing.T, f *fixture) {
	const hub = "hub-with-remnants"
	lost, kept := newDelivery(t, "cpu", "1", "memory", "1Gi"), newDelivery(t, "cpu", "1", "memory", "1Gi")
	kept.Instance.Name = v1alpha1.InstanceName("platform-1", t.Name()+" kept")
	for _, d := range []delivery.Delivery{lost, kept} {
		f.deliverFor(t, hub, d)
	}
	f.commit(t, kept)
	f.account(t, hub, namespaceOf(lost), "sb-lost-with-its-instance")
	f.account(t, hub, namespaceOf(kept), "sb-lost")

	want := []string{
		clusterName + " Namespace /" + namespaceOf(lost),
		clusterName + " RoleBinding " + namespaceOf(kept) + "/sb-lost",
		clusterName + " ServiceAccount " + namespaceOf(kept) + "/sb-lost",
	}
	report, err := f.collector(hub).Collect(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(report.Remnants); !slices.Equal(got, want) {
		t.Errorf("dry run found %q, want %q", got, want)
	}
	if err := f.admin.Get(t.Context(), key("", namespaceOf(lost)), &corev1.Namespace{}); err != nil {
		t.Errorf("namespace after the dry run: %v", err)
	}
	f.reportsPeriodically(t, hub, len(want))
	report, err = f.collector(hub).Collect(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(report.Remnants); !slices.Equal(got, want) || slices.ContainsFunc(report.Remnants, func(r kube.Remnant) bool { return !r.Removed }) {
		t.Errorf("removed %+v, want all of %q", report.Remnants, want)
	}
	eventually(t, "nothing is left of the lost", func(ctx context.Context) (bool, error) {
		for _, o := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(lost)}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(kept), Name: "sb-lost"}},
		} {
			if err := f.admin.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return true, nil
	})
	if err := f.admin.Get(t.Context(), key("", namespaceOf(kept)), &corev1.Namespace{}); err != nil {
		t.Errorf("the namespace that has its instance: %v", err)
	}
}

func theCollectorLeaves(t *testing.T, f *fixture) {
	const hub = "hub-without-remnants"
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.commit(t, d)
	f.deliverFor(t, hub, d)
	foreign := newDelivery(t, "cpu", "1", "memory", "1Gi")
	foreign.Instance.Name = v1alpha1.InstanceName("platform-1", t.Name()+" of another hub")
	f.deliverFor(t, "hub-of-somebody-else", foreign)
	report, err := f.collector(hub).Collect(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Remnants) != 0 || !slices.Equal(report.Clusters, []string{clusterName}) {
		t.Errorf("report is %+v, want no remnants on one cluster", report)
	}
}

// theCollectorThatIsHeld: on a hub that was restored, an instance that is gone and one that is elsewhere by its status
// are reported, and nothing is removed. Once that is released, only the first is.
func theCollectorThatIsHeld(t *testing.T, f *fixture) {
	const hub = "hub-that-was-restored"
	gone, moved := newDelivery(t, "cpu", "1", "memory", "1Gi"), newDelivery(t, "cpu", "1", "memory", "1Gi")
	moved.Instance.Name = v1alpha1.InstanceName("platform-1", t.Name()+" moved")
	for _, d := range []delivery.Delivery{gone, moved} {
		f.deliverFor(t, hub, d)
	}
	f.commit(t, moved) // with no placement
	held := errors.New("the hub was restored")
	collector := f.collector(hub)
	collector.Hold = func(context.Context) error { return held }
	if _, err := collector.Collect(t.Context(), true); !errors.Is(err, held) {
		t.Errorf("a removal that is held: %v", err)
	}
	wants := func(elsewhere ...string) {
		t.Helper()
		report, err := collector.Collect(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range report.Remnants {
			if r.Elsewhere {
				got = append(got, r.Name)
			}
		}
		if all := len(report.Remnants); all != 1+len(elsewhere) || !slices.Equal(got, elsewhere) {
			t.Errorf("%d remnants, elsewhere are %q, want %q", all, got, elsewhere)
		}
	}
	wants(namespaceOf(moved))
	held = nil
	wants()
	held = errors.New("the hub was restored again")
	f.removesTheChosen(t, collector)
}

// removesTheChosen: what an operator chooses is removed while the rest is held, unless it has got an owner in the meantime.
func (f *fixture) removesTheChosen(t *testing.T, collector *kube.Collector) {
	t.Helper()
	chosen, again := newDelivery(t, "cpu", "1", "memory", "1Gi"), newDelivery(t, "cpu", "1", "memory", "1Gi")
	for name, d := range map[string]delivery.Delivery{"chosen": chosen, "ordered again": again} {
		d.Instance.Name = v1alpha1.InstanceName("platform-1", t.Name()+name)
		f.deliverFor(t, collector.Hub, d)
	}
	report, err := collector.Collect(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	both := slices.DeleteFunc(report.Remnants, func(r kube.Remnant) bool { return r.Name != namespaceOf(chosen) && r.Name != namespaceOf(again) })
	for _, r := range both {
		if cpu := r.Size[corev1.ResourceRequestsCPU]; cpu.Value() != 1 {
			t.Errorf("%s has the size %v", r.Name, r.Size)
		}
	}
	f.commit(t, again)
	found, err := collector.Remove(t.Context(), both)
	if err != nil || len(both) != 2 || len(found) != 1 || found[0].Name != namespaceOf(chosen) || !found[0].Removed {
		t.Errorf("of %q it found %+v, %v", names(both), found, err)
	}
}

// reportsPeriodically runs the collector as the manager does, until its metric
// counts the remnants.
func (f *fixture) reportsPeriodically(t *testing.T, hub string, remnants int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	collector := f.collector(hub)
	collector.Mode, collector.Period = kube.CollectorReport, time.Millisecond
	ended := make(chan error)
	go func() { ended <- collector.Start(ctx) }()
	eventually(t, "the metric counts the remnants", func(context.Context) (bool, error) {
		families, err := metrics.Registry.Gather()
		counted := 0.0
		for _, family := range families {
			if family.GetName() == "sluice_remnants" {
				for _, metric := range family.GetMetric() {
					counted += metric.GetGauge().GetValue()
				}
			}
		}
		return counted == float64(remnants), err
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the collector ended with %v", err)
	}
}

func theCollectorThatIsOffEnds(t *testing.T, f *fixture) {
	if err := f.collector("hub-1").Start(t.Context()); err != nil {
		t.Error(err)
	}
}

// hookedReader calls before before every list.
type hookedReader struct {
	client.Reader
	before func()
}

func (r hookedReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, names := list.(*metav1.PartialObjectMetadataList); names {
		r.before()
	}
	return r.Reader.List(ctx, list, options...)
}

// theCollectorLeavesTheAdopted: after the collector has read the member cluster, an instance of
// the same name takes over the namespace. It is gone from the hub again before the collector
// reads that.
func theCollectorLeavesTheAdopted(t *testing.T, f *fixture) {
	const hub = "hub-with-an-adoption"
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	f.deliverFor(t, hub, d)
	collector := f.collector(hub)
	collector.Live = hookedReader{f.hub, sync.OnceFunc(func() {
		d.Instance.UID = "uid of the next"
		f.deliverFor(t, hub, d)
	})}
	report, err := collector.Collect(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	var namespace corev1.Namespace
	if err := f.admin.Get(t.Context(), key("", namespaceOf(d)), &namespace); err != nil {
		t.Fatal(err)
	}
	if len(report.Remnants) != 0 || !namespace.DeletionTimestamp.IsZero() {
		t.Errorf("took %+v, want the adopted namespace left", report.Remnants)
	}
}
