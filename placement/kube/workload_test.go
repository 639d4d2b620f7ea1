package kube_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
	"github.com/sluice-dev/sluice/placement/delivery"
)

func aWorkloadRuns(t *testing.T, f *fixture) {
	f.volume(t, "a-workload-runs")
	d := withWorkload(t, shop, "")
	f.runs(t, d)

	var quota corev1.ResourceQuota
	f.get(t, d, "sluice", &quota)
	if got, want := quota.Spec.Hard[corev1.ResourcePods], d.Placement.Reserved[corev1.ResourcePods]; got.Cmp(want) != 0 || got.Value() != 4 {
		t.Errorf("the quota allows %s pods, want 4: two, one of a rollout, and the database", got.String())
	}
	var web appsv1.Deployment
	f.get(t, d, "web", &web)
	if web.Status.ReadyReplicas != 2 {
		t.Errorf("%d pods of web are ready, want 2", web.Status.ReadyReplicas)
	}
	var secret corev1.Secret
	f.get(t, d, "db", &secret)
	if got := string(secret.Data["env.PASSWORD"]); got != string(d.Workload.Secrets["password"].Reveal()) {
		t.Error("the database does not get the instance's password")
	}
	if pulls := web.Spec.Template.Spec.ImagePullSecrets; len(pulls) != 1 {
		t.Errorf("images are pulled with %v", pulls)
	} else if f.get(t, d, pulls[0].Name, &secret); !strings.Contains(string(secret.Data[corev1.DockerConfigJsonKey]), `"registry.example":{"username":"ann"`) {
		t.Error("the registry's user does not arrive")
	}
	var policy networkingv1.NetworkPolicy
	f.get(t, d, "sluice-allow", &policy)
	if len(policy.Spec.Ingress) != 0 {
		t.Error("every pod of the instance reaches every port")
	}
}

// webChart returns the charts that plans of these tests have: one, of a web server.
func webChart(t *testing.T) chartstest.Charts {
	t.Helper()
	all := chartstest.Charts{}
	for _, chart := range chartstest.Of(t, chartstest.Pack(t, chartstest.Web(t, nil))) {
		all["web"] = chart
	}
	return all
}

func aChartRuns(t *testing.T, f *fixture) {
	const site = `
parameters: {replicas: {type: integer}}
components:
- name: site
  ports: [{name: http, port: 8080}]
  chart: {from: web.tgz, digest: web, parameters: [replicas], values: {owner: ann, cache: {enabled: true}}}
`
	d := withWorkload(t, site, `{"replicas": 2}`)
	f.runs(t, d)
	var deployment appsv1.Deployment
	f.get(t, d, "site", &deployment)
	if deployment.Status.ReadyReplicas != 2 {
		t.Errorf("%d pods are ready, want 2", deployment.Status.ReadyReplicas)
	}

	d = running(t, d, strings.Replace(site, "true", "false", 1), `{"replicas": 1}`)
	f.runs(t, d)
	f.gone(t, d, "site-cache", &corev1.ConfigMap{})
	if f.get(t, d, "site", &deployment); *deployment.Spec.Replicas != 1 {
		t.Errorf("the chart has %d replicas, want 1", *deployment.Spec.Replicas)
	}
}

func aWorkloadChanges(t *testing.T, f *fixture) {
	f.volume(t, "a-workload-changes")
	d := withWorkload(t, shop, "")
	f.runs(t, d)
	var before, after appsv1.StatefulSet
	f.get(t, d, "db", &before)

	d = running(t, d, shop, `{"motto": "bye"}`)
	f.runs(t, d)
	var secret corev1.Secret
	f.get(t, d, "web", &secret)
	if string(secret.Data["env.MOTTO"]) != "bye" {
		t.Error("the parameter did not arrive")
	}
	f.get(t, d, "db", &after)
	if after.Generation != before.Generation {
		t.Error("a parameter of web changes the database")
	}

	smaller := shop[:strings.Index(shop, "- name: db")]
	smaller = strings.ReplaceAll(smaller, `DB: "${components.db.host}", `, "")
	d = running(t, d, smaller, "")
	f.runs(t, d)
	for name, o := range map[string]client.Object{
		"db": &appsv1.StatefulSet{}, "db-data": &corev1.PersistentVolumeClaim{}, "extra": &corev1.ConfigMap{},
	} {
		f.gone(t, d, name, o)
	}
	f.gone(t, d, "db", &corev1.Service{})
	f.gone(t, d, "db", &corev1.Secret{})
	f.gone(t, d, "db", &networkingv1.NetworkPolicy{})
	var quota corev1.ResourceQuota
	f.get(t, d, "sluice", &quota)
	if pods := quota.Spec.Hard[corev1.ResourcePods]; pods.Value() != 3 {
		t.Errorf("the quota allows %s pods, want 3", pods.String())
	}
	var parent corev1.ConfigMap
	f.get(t, d, "sluice-workload", &parent)
	if got := parent.Annotations["applyset.kubernetes.io/contains-group-kinds"]; got != "Deployment.apps,NetworkPolicy.networking.k8s.io,Secret,Service" {
		t.Errorf("the set has the kinds %s", got)
	}
}

// gone waits until an object is deleted.
func (f *fixture) gone(t *testing.T, d delivery.Delivery, name string, o client.Object) {
	t.Helper()
	err := until(t, 10*time.Millisecond, 30*time.Second, func(ctx context.Context) (bool, error) {
		err := f.admin.Get(ctx, key(namespaceOf(d), name), o)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Errorf("%T %s is still there: %v", o, name, err)
	}
}

func aWorkloadIsRepaired(t *testing.T, f *fixture) {
	plan := shop[:strings.Index(shop, "- name: db")]
	plan = strings.ReplaceAll(plan, `DB: "${components.db.host}", `, "")
	d := withWorkload(t, plan, "")
	f.runs(t, d)
	for _, test := range []struct {
		name   string
		change func(*testing.T)
		found  string
	}{
		{"an image", func(t *testing.T) {
			web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(d), Name: "web"}} // its controller writes, too
			f.must(t, f.admin.Patch(t.Context(), web, client.RawPatch(
				types.StrategicMergePatchType, []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"sluice.dev/other:1"}]}}}}`))))
		}, "Deployment web was changed: .spec.template.spec.containers[0].image is sluice.dev/other:1, not sluice.dev/web:1"},
		{"a secret", func(t *testing.T) {
			var web corev1.Secret
			f.get(t, d, "web", &web)
			web.Data["env.MOTTO"] = []byte("something else")
			f.must(t, f.admin.Update(t.Context(), &web))
		}, "Secret web was changed: its content"},
		{"a policy", func(t *testing.T) {
			f.must(t, f.admin.Delete(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(d), Name: "web"}}))
		}, `networkpolicies.networking.k8s.io "web" not found`},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.change(t)
			err := f.driver().Observe(t.Context(), d)
			if err == nil || !strings.Contains(err.Error(), test.found) {
				t.Errorf("observe: got %v, want %s", err, test.found)
			}
			f.runs(t, d)
		})
	}
}

func (f *fixture) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantRefused fails the test unless an error is a refusal whose message for the consumer is as wanted.
func wantRefused(t *testing.T, err error, consumer string) {
	t.Helper()
	var refused *delivery.RefusedError
	if !errors.As(err, &refused) || refused.Consumer != consumer {
		t.Errorf("got %v, want the refusal %q", err, consumer)
	}
}

func aWorkloadThatMakesNoProgressIsRefused(t *testing.T, f *fixture) {
	d := withWorkload(t, `
components:
- name: big
  container: {image: i, deadlineSeconds: 10, resources: {cpu: 1000, memory: 16Mi}}
`, "")
	err := f.driver().Deliver(t.Context(), d)
	var pending *delivery.PendingError
	if !errors.As(err, &pending) || !strings.HasPrefix(pending.Consumer, "big: 0 of 1 pods ready") {
		t.Errorf("got %v, want what is waited for", err)
	}
	wantRefused(t, f.delivered(t, d), "big: 0 of 1 pods ready: Unschedulable")
}

// whatIsAppliedIsNotAppliedAgain, as long as nothing else is to be applied.
func whatIsAppliedIsNotAppliedAgain(t *testing.T, f *fixture) {
	plan := func(cpu string) string {
		return "components: [{name: big, container: {image: i, resources: {cpu: " + cpu + ", memory: 16Mi}}}]"
	}
	d := withWorkload(t, plan("1000"), "") // no node has that
	waits := func() *delivery.PendingError {
		t.Helper()
		var pending *delivery.PendingError
		if err := f.driver().Deliver(t.Context(), d); !errors.As(err, &pending) || pending.Applied == "" {
			t.Fatalf("got %v, want everything applied and something waited for", err)
		}
		return pending
	}
	d.Applied = waits().Applied
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(d), Name: "big"}}
	f.must(t, f.admin.Delete(t.Context(), policy))
	if again := waits(); again.Applied != d.Applied || !strings.HasPrefix(again.Consumer, "big: 0 of 1 pods ready") {
		t.Errorf("the second time it says %+v", again)
	}
	if err := f.admin.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); !apierrors.IsNotFound(err) {
		t.Errorf("the policy: %v, want nothing applied", err)
	}

	f.must(t, f.admin.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(d), Name: "big"}}))
	waits() // for one that is new
	f.get(t, d, "big", policy)

	f.must(t, f.admin.Delete(t.Context(), policy))
	was := d.Applied
	d = running(t, d, plan("1001"), "")
	if d.Applied = was; waits().Applied == was {
		t.Error("another workload is said to be applied")
	}
	f.get(t, d, "big", &networkingv1.NetworkPolicy{})
}

func whatTheClusterRefusesIsRefused(t *testing.T, f *fixture) {
	const deployment = `
components:
- name: a
  manifests:
  - apiVersion: apps/v1
    kind: Deployment
    metadata: {name: a}
    spec:
      selector: {matchLabels: {app: z}}
      template: {spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1m, memory: 4Mi}}}]}}
`
	wantRefused(t, f.delivered(t, withWorkload(t, deployment, "")), "component a: Deployment a is refused: Invalid")

	// The cluster quotes the template of a Job that cannot change.
	const job = `
secrets: [{name: password}]
components:
- name: a
  manifests:
  - apiVersion: batch/v1
    kind: Job
    metadata: {name: a}
    spec:
      template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, args: ["AS", "${secrets.password}"], resources: {limits: {cpu: 1m, memory: 4Mi}}}]}}
`
	d := withWorkload(t, strings.Replace(job, "AS", "one", 1), "")
	f.runs(t, d)
	err := f.delivered(t, running(t, d, strings.Replace(job, "AS", "other", 1), ""))
	wantRefused(t, err, "component a: Job a is refused: Invalid")
	password := d.Workload.Secrets["password"]
	if refused := (*delivery.RefusedError)(nil); !errors.As(err, &refused) || !strings.Contains(refused.Reason, "***") || strings.Contains(refused.Reason, string(password.Reveal())) {
		t.Errorf("the reason is %v", refused)
	}
}

func aWorkloadTakesNoMoreThanReserved(t *testing.T, f *fixture) {
	d := withWorkload(t, `
components:
- name: a
  container: {image: i, replicas: "${cluster.name == 'cluster-a' ? 5 : 1}", resources: {cpu: 1m, memory: 4Mi}}
`, "")
	err := f.driver().Deliver(t.Context(), d)
	var refused *delivery.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Reason, "takes 6m cpu, the plan allows 2m") {
		t.Errorf("got %v, want a refusal with the amounts", err)
	}
	if err := f.admin.Get(t.Context(), key("", namespaceOf(d)), &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("something was delivered: %v", err)
	}
}

// aComponentRunsElsewhere: a component that moves to another cluster leaves the Service of its name, at the same
// address, which leads there and to none of its former pods; and when it comes back, to its pods only.
func aComponentRunsElsewhere(t *testing.T, f *fixture) {
	d := withWorkload(t, shop, "")
	f.volume(t, "elsewhere")
	f.runs(t, d)
	all := d.Placement
	leads := func(what string, wanted func(discoveryv1.EndpointSlice) bool) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) (bool, error) {
			var slices discoveryv1.EndpointSliceList
			err := f.admin.List(ctx, &slices, client.InNamespace(namespaceOf(d)), client.MatchingLabels{discoveryv1.LabelServiceName: "web"})
			leading := 0
			for i := range slices.Items {
				if len(slices.Items[i].Endpoints) > 0 {
					slices.Items[leading] = slices.Items[i]
					leading++
				}
			}
			return err == nil && leading == 1 && wanted(slices.Items[0]), err
		})
	}
	ours := func(s discoveryv1.EndpointSlice) bool {
		return s.Labels[discoveryv1.LabelManagedBy] == v1alpha1.ManagedBy
	}
	leads("web has pods", func(s discoveryv1.EndpointSlice) bool { return !ours(s) && len(s.Endpoints) == 2 })
	var before, service corev1.Service
	f.get(t, d, "web", &before)

	d.Placement.Components = []string{"db", "extra"}
	d.Placement.Linked = []v1alpha1.LinkedCluster{{Cluster: "far", Links: []v1alpha1.ComponentLink{{Here: "db", There: "web"}}}}
	whole := d.Workload
	d.Workload = whole.On(&d.Placement, []v1alpha1.Placement{d.Placement, {Cluster: "far", Components: []string{"web"}}})
	remote := d.Workload.Share.Elsewhere["web"]
	remote.Addresses = []string{"10.70.0.5"}
	d.Workload.Share.Elsewhere["web"] = remote
	f.runs(t, d)
	f.get(t, d, "web", &service)
	if service.UID != before.UID || service.Spec.Ports[0].Port != 80 {
		t.Errorf("the Service is %+v, and was %+v", service, before)
	}
	leads("web is elsewhere", func(s discoveryv1.EndpointSlice) bool { return ours(s) && s.Endpoints[0].Addresses[0] == "10.70.0.5" })
	f.gone(t, d, "web", &appsv1.Deployment{})
	if err := f.driver().Observe(t.Context(), d); err != nil {
		t.Error(err)
	}

	d.Placement, d.Workload = all, whole
	f.runs(t, d)
	leads("web is back", func(s discoveryv1.EndpointSlice) bool { return !ours(s) && len(s.Endpoints) == 2 })
}
