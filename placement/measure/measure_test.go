package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

func TestMain(m *testing.M) { hubtest.Main(m) }

// offering sells probes, and what is none.
const offering = `
id: probes
name: probes
description: Probes.
planUpdateable: true
plans:
- &plan
  id: small
  name: small
  description: A probe.
  kind: workload
  maintenanceInfo: {version: 1.0.0}
  resources: {limits: {cpu: 20m, memory: 32Mi}, selectable: [sluice.dev/cluster]}
  workload:
    parameters: {broker: {type: string, default: ""}, start: {type: string, default: ""}}
    secrets: [{name: token}]
    components: [{name: probe, container: {image: sluice, resources: {cpu: 10m, memory: 16Mi}}}]
- <<: *plan
  id: large # whose pods do not know their start
  name: large
  workload:
    parameters: {broker: {type: string, default: ""}}
    secrets: [{name: token}]
    components: [{name: probe, container: {image: sluice, resources: {cpu: 10m, memory: 16Mi}}}]
- {<<: *plan, id: fixed, name: fixed, resources: {limits: {cpu: 20m, memory: 32Mi}}}
- {id: none, name: none, description: No workload., kind: resources, resources: {limits: {cpu: 1}}}
`

// world is a hub with the clusters a, b and c, of which c does not answer.
type world struct {
	*testing.T
	hub       client.Client
	namespace string
	clock     *clocktesting.FakePassiveClock
	*Controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	hub, err := client.New(hubtest.Start(t).Config, client.Options{Scheme: scheme})
	if err := errors.Join(v1alpha1.AddToScheme(scheme), err); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, hub: hub, namespace: hubtest.Namespace(t), clock: clocktesting.NewFakePassiveClock(time.Now())}
	spec := v1alpha1.ServiceOfferingSpec{}
	w.must(yaml.Unmarshal([]byte(offering), &spec))
	twin := *spec.DeepCopy()
	twin.ID, twin.Name, twin.Plans = "twin", "twin", twin.Plans[:1]
	twin.Plans[0].ID = "twin"
	plans, err := catalog.Build([]v1alpha1.ServiceOffering{
		{ObjectMeta: metav1.ObjectMeta{Name: "probes"}, Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}},
		{ObjectMeta: metav1.ObjectMeta{Name: "twin"}, Status: v1alpha1.ServiceOfferingStatus{Accepted: &twin}},
	}, nil, nil, nil)
	w.must(err)
	w.Controller = &Controller{Client: hub, Namespace: w.namespace, Catalog: &catalog.Catalog{}, Clock: w.clock, probes: client.HasLabels{v1alpha1.LabelMeasure}}
	w.Catalog.Replace(plans)
	for _, name := range []string{"a", "b", "c"} {
		w.cluster(name, name != "c", nil)
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) cluster(name string, answers bool, change func(*v1alpha1.MemberCluster)) {
	w.Helper()
	c := placementtest.Cluster{Name: name, Labels: map[string]string{"class": name}}.MemberCluster()
	c.Namespace, c.ResourceVersion = w.namespace, ""
	c.Spec.Access.SealedKubeconfig = []byte("sealed")
	status := c.Status
	if change != nil {
		change(c)
	}
	w.must(w.hub.Create(w.Context(), c))
	c.Status = status
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReachable, Reason: "Test", Status: map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[answers]})
	w.must(w.hub.Status().Update(w.Context(), c))
}

// asks makes a policy ask for probes; measure is the section as YAML, and empty removes the policy.
func (w *world) asks(policy, measure string) {
	w.Helper()
	p := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: policy}}
	w.must(client.IgnoreNotFound(w.hub.Delete(w.Context(), p.DeepCopy())))
	if measure != "" {
		p.Spec.Measure = &v1alpha1.Measure{}
		w.must(yaml.UnmarshalStrict([]byte(measure), p.Spec.Measure))
		w.must(w.hub.Create(w.Context(), p))
	}
}

// look makes a pass, and returns the plans of the probes by their clusters. Those that are to go are gone then.
func (w *world) look() (map[string]string, error) {
	w.Helper()
	_, err := w.Reconcile(w.Context(), ctrl.Request{})
	plans := map[string]string{}
	for _, i := range w.instances() {
		if !i.DeletionTimestamp.IsZero() {
			i.Finalizers = nil
			w.must(w.hub.Update(w.Context(), &i))
			continue
		}
		plans[i.Labels[v1alpha1.LabelMeasure]] = i.Spec.Desired.PlanID
	}
	return plans, err
}

func (w *world) instances() []v1alpha1.ServiceInstance {
	w.Helper()
	var list v1alpha1.ServiceInstanceList
	w.must(w.hub.List(w.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelMeasure}))
	return list.Items
}

// sees checks the plans of the probes after two passes: the second has nothing to do, or finishes the first.
func (w *world) sees(what string, want map[string]string) {
	w.Helper()
	_, err := w.look()
	w.must(err)
	got, err := w.look()
	w.must(err)
	if !maps.Equal(got, want) {
		w.Errorf("%s: there are probes %v, want %v", what, got, want)
	}
}

// ends finishes the last operation of a probe.
func (w *world) ends(cluster string, state v1alpha1.OperationState) {
	w.Helper()
	for _, i := range w.instances() {
		if i.Labels[v1alpha1.LabelMeasure] == cluster {
			i.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: state, StartedAt: metav1.Now(), Description: "as the test says"}
			i.Status.ObservedGeneration = i.Generation
			if state == v1alpha1.StateSucceeded {
				i.Status.Delivered = &v1alpha1.DeliveredState{State: i.Spec.Desired}
				i.Status.Decision = &v1alpha1.Decision{}
			}
			w.must(w.hub.Status().Update(w.Context(), &i))
		}
	}
}

// reached makes a cluster answer, or not.
func (w *world) reached(name string, is metav1.ConditionStatus) {
	w.Helper()
	c := &v1alpha1.MemberCluster{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, c))
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReachable, Reason: "Test", Status: is})
	w.must(w.hub.Status().Update(w.Context(), c))
}

func TestProbesFollowPolicies(t *testing.T) {
	w := newWorld(t)
	w.sees("no policy", map[string]string{})
	w.asks("one", `{clusters: {matchLabels: {class: a}}, serviceID: probes, planID: small, parameters: {broker: "https://broker.example/<&>"}}`)
	w.sees("one cluster", map[string]string{"a": "small"})
	i := w.instances()[0]
	if i.Name != v1alpha1.InstanceName(v1alpha1.PlatformSelf, v1alpha1.ProbeID("a")) || i.Spec.Platform != v1alpha1.PlatformSelf || !slices.Contains(i.Finalizers, v1alpha1.Finalizer) || i.Spec.Desired.MaintenanceVersion != "1.0.0" {
		t.Errorf("the instance is %+v", i)
	}
	for _, want := range []string{`"selector":{"sluice.dev/cluster":"a"}`, "broker.example"} {
		if !strings.Contains(string(i.Spec.Desired.Raw()), want) {
			t.Errorf("its parameters are %s, want %s among them", i.Spec.Desired.Raw(), want)
		}
	}
	w.ends("a", v1alpha1.StateSucceeded)
	w.sees("it is delivered", map[string]string{"a": "small"})
	if now := w.instances()[0]; now.Generation != i.Generation || now.UID != i.UID {
		t.Error("it is changed without a reason")
	}

	w.asks("two", `{serviceID: probes, planID: large}`) // all that answer; the first policy has a
	w.sees("two policies", map[string]string{"a": "small", "b": "large"})
	w.asks("one", `{clusters: {matchLabels: {class: a}}, serviceID: probes, planID: large, parameters: {broker: other}}`)
	w.sees("another plan", map[string]string{"a": "large", "b": "large"})
	w.asks("two", `{serviceID: twin, planID: twin}`)
	w.sees("another service", map[string]string{"a": "large", "b": "twin"})
	w.asks("two", "")
	w.sees("a policy less", map[string]string{"a": "large"})
	w.asks("one", `{clusters: {matchLabels: {class: b}}, serviceID: probes, planID: small}`)
	w.sees("another cluster", map[string]string{"b": "small"})
	w.asks("one", "")
	w.sees("no policy any more", map[string]string{})
}

func TestClustersWithoutAProbe(t *testing.T) {
	w := newWorld(t)
	w.cluster("broker", true, func(c *v1alpha1.MemberCluster) {
		c.Spec.Driver, c.Spec.Broker = v1alpha1.DriverOSB, &v1alpha1.UpstreamBroker{URL: "https://broker.example"}
	})
	w.cluster("makers", true, func(c *v1alpha1.MemberCluster) {
		c.Spec.Driver, c.Spec.Capacity = v1alpha1.DriverCAPI, placementtest.Quantities("cpu=1")
	})
	w.cluster("owned", true, func(c *v1alpha1.MemberCluster) {
		c.Spec.Driver, c.Spec.Consumers = v1alpha1.DriverLiqo, []v1alpha1.ConsumerReference{{Platform: "cf"}}
	})
	w.cluster("drained", true, func(c *v1alpha1.MemberCluster) {
		c.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}
	})
	w.cluster("leaving", true, func(c *v1alpha1.MemberCluster) { c.Finalizers = []string{v1alpha1.Finalizer} })
	leaving := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "leaving"}}
	w.must(w.hub.Delete(t.Context(), leaving))
	t.Cleanup(func() {
		_ = w.hub.Patch(context.Background(), leaving, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"finalizers": null}}`)))
	})
	w.asks("all", `{serviceID: probes, planID: small}`)
	w.sees("all clusters", map[string]string{"a": "small", "b": "small"})

	drain := &v1alpha1.MemberCluster{}
	w.must(w.hub.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "a"}, drain))
	drain.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute}}
	w.must(w.hub.Update(t.Context(), drain))
	w.reached("b", metav1.ConditionFalse)
	w.sees("a is drained, b does not answer", map[string]string{"b": "small"})
}

// TestAProbeThatCannotBePlaced is ordered again after a while.
func TestAProbeThatCannotBePlaced(t *testing.T) {
	w := newWorld(t)
	w.asks("one", `{clusters: {matchLabels: {class: a}}, serviceID: probes, planID: small}`)
	w.sees("it is ordered", map[string]string{"a": "small"})
	w.ends("a", v1alpha1.StateFailed)
	failed := w.instances()[0].UID
	w.sees("it has failed", map[string]string{"a": "small"})
	if w.instances()[0].UID != failed {
		t.Error("it is ordered again at once")
	}
	w.clock.SetTime(w.clock.Now().Add(orderAgain + time.Second))
	w.sees("it is ordered again", map[string]string{"a": "small"})
	if w.instances()[0].UID == failed {
		t.Error("the one that has failed is still there")
	}
}

// TestPodsAreReplaced at a rhythm, one after the other, while nothing else is done with the probe and its cluster answers.
func TestPodsAreReplaced(t *testing.T) {
	w := newWorld(t)
	start := func() string { return w.instances()[0].ProbeStart() }
	w.asks("one", `{clusters: {matchLabels: {class: a}}, serviceID: probes, planID: small}`)
	w.sees("it is ordered", map[string]string{"a": "small"})
	w.clock.SetTime(w.clock.Now().Add(startEvery + time.Minute))
	w.sees("it is not delivered yet", map[string]string{"a": "small"})
	if start() != "" {
		t.Error("the pod is replaced before it was delivered")
	}
	w.ends("a", v1alpha1.StateSucceeded)
	w.sees("an hour is over", map[string]string{"a": "small"})
	first := start()
	if first == "" {
		t.Fatal("the pod is not replaced")
	}
	w.ends("a", v1alpha1.StateSucceeded)
	w.clock.SetTime(w.clock.Now().Add(startEvery - time.Minute))
	w.sees("the next hour is not over", map[string]string{"a": "small"})
	if start() != first {
		t.Error("the pod is replaced too soon")
	}
	w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
	w.reached("a", metav1.ConditionFalse)
	w.sees("the cluster does not answer", map[string]string{"a": "small"})
	if start() != first {
		t.Error("the pod is replaced on a cluster that does not answer")
	}
	w.reached("a", metav1.ConditionTrue)
	w.sees("the next hour is over", map[string]string{"a": "small"})
	if start() == first {
		t.Error("the pod is not replaced again")
	}
	w.ends("a", v1alpha1.StateSucceeded)
	w.asks("one", `{clusters: {matchLabels: {class: a}}, serviceID: probes, planID: large}`)
	w.sees("a plan without the parameter", map[string]string{"a": "large"})
	w.ends("a", v1alpha1.StateSucceeded)
	w.clock.SetTime(w.clock.Now().Add(2 * startEvery))
	w.sees("the pod is not replaced", map[string]string{"a": "large"})
	if start() != "" {
		t.Error("a plan without the parameter gets it")
	}
}

// TestPlansThatRunNoProbe are refused with the reason, and nothing that is there goes.
func TestPlansThatRunNoProbe(t *testing.T) {
	w := newWorld(t)
	w.asks("one", `{clusters: {matchLabels: {class: a}}, serviceID: probes, planID: small}`)
	w.sees("a plan of probes", map[string]string{"a": "small"})
	for measure, why := range map[string]string{
		"planID: other":                           "other",
		"planID: none":                            "plan none has no workload with a secret token",
		"planID: fixed":                           "selector",
		"planID: small, parameters: {broker: 1}":  "broker",
		"planID: small, parameters: {unknown: 1}": "unknown",
	} {
		w.asks("one", fmt.Sprintf("{clusters: {matchLabels: {class: a}}, serviceID: probes, %s}", measure))
		if got, err := w.look(); err == nil || !strings.Contains(err.Error(), "policy one: measure: ") || !strings.Contains(err.Error(), why) || !maps.Equal(got, map[string]string{"a": "small"}) {
			t.Errorf("%s: probes %v, %v", measure, got, err)
		}
	}
	for field, value := range map[string]string{"provider": "acme", "platform": "cf"} {
		p := &v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "theirs"}}
		w.must(yaml.Unmarshal([]byte(field+": "+value+"\nmeasure: {serviceID: probes, planID: small}"), &p.Spec))
		if err := w.hub.Create(t.Context(), p); err == nil || !strings.Contains(err.Error(), "measure is the operator's") {
			t.Errorf("a policy of a %s: %v", field, err)
		}
	}
}
