package capi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
	testbed "github.com/sluice-dev/sluice/test/capi"
)

// Add-ons are installed in order, upgraded when the plan changes, and continued after a kill.
// An add-on that cannot be installed reports why.
func addOns(f *fixture) {
	d := newDelivery("addons")
	greeter := v1alpha1.AddOn{Name: "first", AddOnChart: v1alpha1.AddOnChart{Chart: "greeter", Namespace: "apps"}}
	second := v1alpha1.AddOn{Name: "second", AddOnChart: v1alpha1.AddOnChart{Chart: "greeter", Namespace: "apps", Values: &runtime.RawExtension{Raw: []byte(`{"replicas": 2}`)}}}
	d.Placement.Shape.AddOns = []v1alpha1.AddOn{greeter, second}
	f.deliver(d)
	connection, err := f.driver.Connections.OfInstance(f.Context(), management, d.Instance.Name)
	must(f, err)
	kube := kubernetes.NewForConfigOrDie(connection.Config)
	ready := func(name string) int32 {
		deployment, err := kube.AppsV1().Deployments("apps").Get(f.Context(), name, metav1.GetOptions{})
		must(f, err)
		return deployment.Status.ReadyReplicas
	}
	if one, two := ready("first"), ready("second"); one != 1 || two != 2 {
		f.Errorf("%d and %d replicas are ready, want 1 and 2", one, two)
	}
	must(f, f.driver.Observe(f.Context(), d))

	// An add-on is waited for while its pods have no node to run on.
	schedulable := func(is bool) {
		nodes, err := kube.CoreV1().Nodes().List(f.Context(), metav1.ListOptions{})
		must(f, err)
		for i := range nodes.Items {
			patch := fmt.Appendf(nil, `{"spec": {"unschedulable": %t}}`, !is)
			_, err := kube.CoreV1().Nodes().Patch(f.Context(), nodes.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
			must(f, err)
		}
	}
	more := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
	more.Placement.Shape.AddOns = append(more.Placement.Shape.AddOns, v1alpha1.AddOn{Name: "third", AddOnChart: v1alpha1.AddOnChart{Chart: "greeter", Namespace: "apps"}})
	schedulable(false)
	failed := f.again(time.Minute, func(ctx context.Context) (bool, error) {
		err = f.driver.Deliver(ctx, more)
		return err == nil || strings.Contains(err.Error(), "waiting: add-on third"), nil
	})
	if failed != nil || err == nil {
		f.Errorf("delivering an add-on that cannot run: %v", err)
	}
	schedulable(true)
	f.deliver(more)
	f.deliver(d) // which removes it again

	// An upgrade that was killed halfway: Helm itself would wait for it for ever.
	d.Placement.Shape.AddOns[0].Values = &runtime.RawExtension{Raw: []byte(`{"greeting": "good day"}`)}
	if err := f.driver.Observe(f.Context(), d); err == nil || !strings.Contains(err.Error(), "add-on first is not as it was installed") {
		f.Errorf("observing other values: %v", err)
	}
	change(f, kube, "first", func(releases *storage.Storage, last *release.Release) error {
		last.SetStatus(common.StatusPendingUpgrade, "killed")
		last.Version++
		return releases.Create(last)
	})
	f.deliver(d)
	config, err := kube.CoreV1().ConfigMaps("apps").Get(f.Context(), "first", metav1.GetOptions{})
	must(f, err)
	if config.Data["greeting"] != "good day" {
		f.Errorf("it greets with %q", config.Data["greeting"])
	}

	// An add-on that is chosen again although its removal was killed halfway.
	change(f, kube, "second", func(releases *storage.Storage, last *release.Release) error {
		last.SetStatus(common.StatusUninstalling, "killed")
		return releases.Update(last)
	})
	must(f, kube.AppsV1().Deployments("apps").Delete(f.Context(), "second", metav1.DeleteOptions{}))
	f.deliver(d)
	must(f, f.driver.Observe(f.Context(), d))
	if n := ready("second"); n != 2 {
		f.Errorf("%d replicas are ready after the removal was killed, want 2", n)
	}

	for chart, says := range map[string]string{"broken": "colour is needed", "missing": "there is no chart missing", "..": "no chart"} {
		changed := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
		changed.Placement.Shape.AddOns = append(changed.Placement.Shape.AddOns, v1alpha1.AddOn{Name: "third", AddOnChart: v1alpha1.AddOnChart{Chart: chart, Namespace: "apps"}})
		_, err := f.until(changed, f.driver.Deliver)
		if no := (*delivery.RefusedError)(nil); !errors.As(err, &no) || !strings.Contains(err.Error(), says) {
			f.Errorf("chart %s: %v, want a refusal that says %q", chart, err, says)
		}
	}
	failHalfway(f, d, kube)
	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
	f.wantGone(d)
}

// failHalfway adds an add-on of which the cluster accepts only a part. The error names the
// rejected object. Nothing of it remains once the previous add-ons are delivered again, nor of
// an add-on that is not wanted any more. Releases of the owner stay.
func failHalfway(f *fixture, d delivery.Delivery, kube kubernetes.Interface) {
	f.Helper()
	left := func() (names []string) {
		configs, err := kube.CoreV1().ConfigMaps("apps").List(f.Context(), metav1.ListOptions{})
		must(f, err)
		secrets, err := kube.CoreV1().Secrets("apps").List(f.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
		must(f, err)
		for i := range configs.Items {
			names = append(names, configs.Items[i].Name)
		}
		for i := range secrets.Items {
			names = append(names, secrets.Items[i].Labels["name"])
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == "kube-root-ca.crt" })
		slices.Sort(names)
		return slices.Compact(names)
	}
	owners := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.owners.v1", Labels: map[string]string{"owner": "helm", "name": "owners"}}}
	_, err := kube.CoreV1().Secrets("apps").Create(f.Context(), owners, metav1.CreateOptions{})
	must(f, err)
	half := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
	half.Placement.Shape.AddOns = append(half.Placement.Shape.AddOns, v1alpha1.AddOn{Name: "third", AddOnChart: v1alpha1.AddOnChart{Chart: "halfway", Namespace: "apps"}})
	_, err = f.until(half, f.driver.Deliver)
	if no := (*delivery.RefusedError)(nil); !errors.As(err, &no) || !strings.Contains(err.Error(), "add-on third: ") || !strings.Contains(err.Error(), "70000") {
		f.Errorf("an add-on of which a part is refused: %v", err)
	}
	if got := left(); !slices.Contains(got, "third") {
		f.Errorf("there are %v, want the half of third", got)
	}
	f.deliver(d)
	if got := left(); !slices.Equal(got, []string{"first", "owners", "second"}) {
		f.Errorf("after undoing there are %v", got)
	}

	// The second may need the first, and is removed before it.
	gone, err := kube.CoreV1().Secrets("apps").Watch(f.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
	must(f, err)
	defer gone.Stop()
	d.Placement.Shape.AddOns = nil
	f.deliver(d)
	var order []string
	for !slices.Contains(order, "first") || !slices.Contains(order, "second") {
		select {
		case event := <-gone.ResultChan():
			if secret, ok := event.Object.(*corev1.Secret); ok && event.Type == watch.Deleted {
				order = append(order, secret.Labels["name"])
			}
		case <-time.After(time.Minute):
			f.Fatalf("of first and second, %v are removed", order)
		}
	}
	if order = slices.Compact(order); !slices.Equal(order, []string{"second", "first"}) {
		f.Errorf("they are removed in the order %v", order)
	}
	if got := left(); !slices.Equal(got, []string{"owners"}) {
		f.Errorf("without add-ons there are %v", got)
	}
}

// A class that changes under a running cluster does not change the cluster. An update names the
// fault of the class, and works once that is repaired.
func classThatChanges(f *fixture) {
	class := func(of string, old, new string) {
		f.Helper()
		documents := strings.ReplaceAll(of, "kind: ClusterClass\nmetadata:\n  name: simulated", "kind: ClusterClass\nmetadata:\n  name: changing")
		if old != "" && !strings.Contains(documents, old) {
			f.Fatalf("the class has no %s", old)
		}
		must(f, f.bed.Apply(f.Context(), []byte(strings.ReplaceAll(documents, old, new))))
	}
	whole, _, _ := strings.Cut(string(testbed.Class), "\n---\n")
	const template = "kind: SimulatedConfigTemplate, name: simulated"
	class(whole, template, template)
	d := newDelivery("changes")
	d.Placement.Shape.Class = "changing"
	f.deliver(d)

	class(whole, template, "kind: SimulatedConfigTemplate, name: missing")
	grown := delivery.Delivery{Instance: d.Instance, Placement: *d.Placement.DeepCopy()}
	grown.Placement.Shape.Workers[0].Replicas = 2
	const why = "waiting: read ClusterClass default/changing on management: RefVersionsUpToDate is not true"
	var err error
	says := f.again(time.Minute, func(ctx context.Context) (bool, error) {
		if err := f.driver.Observe(ctx, d); err != nil {
			return false, fmt.Errorf("what runs is not as it was delivered: %w", err)
		}
		err = f.driver.Deliver(ctx, grown)
		return err != nil && strings.Contains(err.Error(), why), nil
	})
	if says != nil {
		f.Errorf("%v, and it does not say that something is wrong with the class: %v", says, err)
	}
	if nodes := f.nodes(d); len(nodes) != 1 {
		f.Errorf("%d nodes while the class is wrong, want the one that there was", len(nodes))
	}

	class(whole, template, template)
	f.deliver(grown)
	if nodes := f.nodes(d); len(nodes) != 2 {
		f.Errorf("%d nodes once the class is right, want 2", len(nodes))
	}
	if _, err := f.until(d, f.driver.Remove); err != nil {
		f.Fatal(err)
	}
	f.wantGone(d)
}

// change changes the newest revision of a release as a kill does.
func change(f *fixture, kube kubernetes.Interface, name string, with func(*storage.Storage, *release.Release) error) {
	f.Helper()
	releases := storage.Init(driver.NewSecrets(kube.CoreV1().Secrets("apps")))
	last, err := releases.Last(name)
	must(f, err)
	must(f, with(releases, last.(*release.Release)))
}
