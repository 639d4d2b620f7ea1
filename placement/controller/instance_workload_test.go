package controller

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

func TestAWorkloadReservesWhatItTakes(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-web", `{"replicas": 2}`)
	a := w.passes("si-a")
	w.wantOperation(a, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantReserved("eu", 3) // two, and one of a rollout
	before := w.secrets(a)
	if len(before) != 3 { // two, and the key of fingerprints
		t.Errorf("the instance has %d secrets", len(before))
	}

	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 4}`) })
	a = w.passes("si-a")
	w.wantReserved("eu", 5)
	if after := w.secrets(a); !after["key"].Equal(before["key"]) {
		t.Error("an update changes a secret")
	}
}

func TestARunningWorkloadChangesOnlyWithItsMaintenance(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-web", "")
	before := w.secrets(w.passes("si-a"))

	w.sellWorkloads("2")
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"replicas": 2}`) })
	a := w.passes("si-a")
	if got := image(&a.Status.Delivered.Decision); got != "web:1" {
		t.Errorf("a parameter brings the image %s", got)
	}
	w.wantReserved("eu", 3)

	w.update("si-a", func(s *v1alpha1.InstanceState) { s.MaintenanceVersion = "2.0.0" })
	a = w.passes("si-a")
	if got := image(&a.Status.Delivered.Decision); got != "web:2" {
		t.Errorf("the maintenance brings the image %s", got)
	}
	after := w.secrets(a)
	if !after["key"].Equal(before["key"]) || len(after) != 4 {
		t.Errorf("after the maintenance there are %d secrets, want the three before and one more", len(after))
	}
}

func TestAFailureIsRememberedWhileItIsUndone(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.provision("si-a", "plan-web", "")
	w.passes("si-a")

	w.sellWorkloads("2")
	w.driver.fail("deliver eu", &delivery.RefusedError{Reason: "web: 0 of 1 pods ready on eu", Consumer: "web: 0 of 1 pods ready", Repeatable: true})
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.MaintenanceVersion = "2.0.0" })
	w.driver.onDeliver = func(d delivery.Delivery) { // the first is refused, what follows waits
		w.driver.failing["deliver eu"] = &delivery.PendingError{Step: "run the workload on eu"}
	}
	a := w.passes("si-a")
	w.wantOperation(a, v1alpha1.OperationUpdate, v1alpha1.StateInProgress, "")
	if f := a.Status.Operation.Failing; f == nil || f.Summary != "web: 0 of 1 pods ready" {
		t.Fatalf("the failure is not remembered: %+v", f)
	}
	var images []string
	w.driver.onDeliver = func(d delivery.Delivery) { images = append(images, d.Workload.Plan.Components[0].Container.Image) }
	w.after(5 * time.Second)
	w.passes("si-a")
	w.driver.fail("deliver eu", nil)
	a = w.passes("si-a")
	if slices.Contains(images, "web:2") || !slices.Contains(images, "web:1") {
		t.Errorf("while it is undone, %v are delivered", images)
	}
	w.wantOperation(a, v1alpha1.OperationUpdate, v1alpha1.StateFailed, "")
	if op := a.Status.Operation; op.Failing != nil || op.Summary != "web: 0 of 1 pods ready" || !isTrue(op.InstanceUsable) || !isTrue(op.UpdateRepeatable) {
		t.Errorf("the operation ends as %+v", op)
	}
}

func TestAWorkloadWithVolumesStays(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.provision("si-db", "plan-db", "")
	w.provision("si-web", "plan-web", "")
	w.passes("si-db")
	w.passes("si-web")
	w.cluster("us", 8)
	w.cluster("asia", 8)
	w.lose("eu")
	w.after(v1alpha1.UnreachableSeconds * time.Second)

	w.wantOn(w.settle("si-web"), "asia")
	db := w.settle("si-db")
	w.wantOn(db, "eu")
	w.after(10 * time.Minute)
	db = w.settle("si-db")
	ready := meta.FindStatusCondition(db.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || !strings.HasPrefix(ready.Message, "waiting for the cluster that has its volumes: eu does not answer") {
		t.Errorf("it says %+v", ready)
	}
}

func TestOnlyTheComponentWithVolumesStays(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 2)
	w.cluster("us", 1)
	w.provision("si-app", "plan-app", "")
	app := w.passes("si-app")
	w.wantOperation(app, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	w.wantReserved("eu", 2) // web, and one more of a rollout
	w.wantReserved("us", 1)
	w.cluster("asia", 8)
	w.lose("eu")
	w.after(v1alpha1.UnreachableSeconds * time.Second)
	app = w.settle("si-app")
	w.wantOnAll(app, "asia", "us")
	for _, p := range app.Status.Delivered.Decision.Placements {
		if want := map[string]string{"asia": "web", "us": "db"}[p.Cluster]; !slices.Equal(p.Components, []string{want}) {
			t.Errorf("%s runs %v, want %s", p.Cluster, p.Components, want)
		}
	}

	w.lose("us")
	w.after(10 * time.Minute)
	app = w.settle("si-app")
	w.wantOnAll(app, "asia", "us")
	if app.Status.IsPinnedOn("asia") || !app.Status.IsPinnedOn("us") {
		t.Error("it is not the component with volumes that stays")
	}
}

// What has volumes waits for a lost cluster, and what runs beside it does not. When the cluster is back, what has
// left is deleted there.
func TestComponentsPartOnALostCluster(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.provision("si-app", "plan-app", "")
	w.wantOnAll(w.passes("si-app"), "eu")
	w.cluster("us", 8)
	w.cluster("asia", 1)
	delivered := map[string][]string{}
	w.driver.onDeliver = func(d delivery.Delivery) { delivered[d.Placement.Cluster] = d.Placement.Components }
	w.lose("eu")
	w.after(v1alpha1.UnreachableSeconds * time.Second)
	app := w.settle("si-app")
	w.wantOnAll(app, "eu", "us")
	for _, p := range app.Status.Delivered.Decision.Placements {
		if want := map[string]string{"eu": "db", "us": "web"}[p.Cluster]; !slices.Equal(p.Components, []string{want}) {
			t.Errorf("%s runs %v, want %s", p.Cluster, p.Components, want)
		}
	}
	w.wantReserved("eu", 1)
	if left := app.Status.Left; len(left) > 0 || app.Status.IsUndelivered() || !slices.Equal(delivered["us"], []string{"web"}) {
		t.Errorf("it has left %v, us got %v", left, delivered["us"])
	}
	if ready := meta.FindStatusCondition(app.Status.Conditions, v1alpha1.ConditionReady); !strings.HasPrefix(ready.Message, "waiting for the cluster that has its volumes: eu does not answer") {
		t.Errorf("it says %+v", ready)
	}

	keys := w.reconciler.keys
	w.start() // another Sluice knows as much
	w.reconciler.keys = keys
	w.sellWorkloads("1")
	delete(delivered, "eu")
	w.settle("si-app")
	w.after(observeEvery + time.Minute)
	app = w.settle("si-app")
	if !slices.Equal(delivered["eu"], []string{"db"}) || !meta.IsStatusConditionTrue(app.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("eu is back, and gets %v: %+v", delivered["eu"], app.Status.Conditions)
	}
	w.wantOnAll(app, "eu", "us")
}

// What leaves a lost cluster may join others of its own instance.
func TestComponentsPartToAClusterOfTheInstance(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 3)
	w.provision("si-app", "plan-app", "")
	w.wantOnAll(w.passes("si-app"), "eu")
	w.lose("eu")
	w.after(v1alpha1.UnreachableSeconds * time.Second)
	w.wantOnAll(w.settle("si-app"), "eu") // there is no other
	w.cluster("us", 8)
	w.wantOnAll(w.settle("si-app"), "eu", "us")
}

func TestAHostBelongsToOneInstance(t *testing.T) {
	const taken = "components[web].ports[http].host: shop is taken by another instance"
	w := newWorkloadWorld(t)
	w.cluster("closed", 8)
	w.cluster("eu", 8)
	mc := &v1alpha1.MemberCluster{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "eu"}, mc))
	mc.Spec.Exposure = &v1alpha1.ClusterExposure{Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public"}, Domain: "apps.example"}
	w.must(w.hub.Update(w.Context(), mc))
	w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
	w.provision("si-a", "plan-site", `{"name": "shop"}`)
	a := w.passes("si-a")
	w.wantOn(a, "eu")
	if got := a.Status.Delivered.Decision.Hosts; !slices.Equal(got, []string{"shop"}) {
		t.Errorf("the decision has the hosts %v", got)
	}
	w.provision("si-b", "plan-site", `{"name": "shop"}`)
	b := w.passes("si-b")
	w.wantOperation(b, v1alpha1.OperationProvision, v1alpha1.StateFailed, taken)
	if b.Status.Operation.Summary != taken {
		t.Errorf("the consumer reads %q", b.Status.Operation.Summary)
	}
	w.provision("si-c", "plan-site", "") // its host is generated
	w.wantOperation(w.passes("si-c"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")

	keys := w.reconciler.keys
	w.start()
	w.reconciler.keys = keys
	w.sellWorkloads("1")
	w.update("si-c", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"name": "shop"}`) })
	c := w.passes("si-c")
	w.wantOperation(c, v1alpha1.OperationUpdate, v1alpha1.StateFailed, taken)
	if op := c.Status.Operation; !isTrue(op.InstanceUsable) || c.Status.Delivered == nil {
		t.Errorf("the refused update leaves %+v", op)
	}

	w.provision("si-e", "plan-room", `{"expose": [{"name": "web", "port": 8080, "host": "shop"}]}`)
	w.wantOperation(w.passes("si-e"), v1alpha1.OperationProvision, v1alpha1.StateFailed, "expose[web].host: shop is taken by another instance")
	w.provision("si-f", "plan-room", `{"expose": [{"name": "web", "port": 8080, "host": "room"}]}`)
	room := w.passes("si-f")
	w.wantOn(room, "eu")
	if d := room.Status.Delivered.Decision; !slices.Equal(d.Hosts, []string{"room"}) || len(d.Exposed) != 1 || d.Workload != nil {
		t.Errorf("the decision is %+v", d)
	}
	w.update("si-f", func(s *v1alpha1.InstanceState) { s.Parameters = raw(`{"expose": []}`) })
	room = w.passes("si-f")
	w.wantOperation(room, v1alpha1.OperationUpdate, v1alpha1.StateSucceeded, "")
	if d := room.Status.Delivered.Decision; len(d.Hosts)+len(d.Exposed) != 0 {
		t.Errorf("the decision still has %+v", d)
	}

	w.deprovision("si-a")
	for !w.gone("si-a") {
		_, err := w.pass("si-a")
		w.must(err)
	}
	w.provision("si-d", "plan-site", `{"name": "shop"}`)
	w.wantOperation(w.passes("si-d"), v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
}

// The decision has the port before any cluster is touched, each instance keeps its own over a restart and an update,
// and a port is given to another one when its instance is gone.
func TestAPublicPortBelongsToOneInstance(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	mc := &v1alpha1.MemberCluster{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "eu"}, mc))
	mc.Spec.Exposure = &v1alpha1.ClusterExposure{
		Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public"}, Domain: "apps.example", TCP: &v1alpha1.ExposureTCP{First: 30500, Last: 30501},
	}
	w.must(w.hub.Update(w.Context(), mc))
	w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
	const one = `{"expose": [{"name": "mqtt", "port": 1883, "appProtocol": "tcp"}]}`
	port := func(name string) int32 {
		t.Helper()
		instance := w.passes(name)
		w.wantOn(instance, "eu")
		ports := instance.Status.Delivered.Decision.Placements[0].PublicPorts
		if len(ports) != 1 || ports["mqtt"] < 30500 || ports["mqtt"] > 30501 {
			t.Fatalf("%s has the ports %v", name, ports)
		}
		return ports["mqtt"]
	}
	w.provision("si-a", "plan-room", one)
	w.provision("si-b", "plan-room", one)
	a, b := port("si-a"), port("si-b")
	if a == b {
		t.Fatalf("both instances have the port %d", a)
	}

	keys := w.reconciler.keys
	w.start()
	w.reconciler.keys = keys
	w.sellWorkloads("1")
	w.inventory.UpsertCluster(placement.ClusterOf(mc, w.clock.Now()))
	w.provision("si-c", "plan-room", one)
	c := w.settle("si-c")
	if c.Status.Delivered != nil || !strings.Contains(c.Status.Operation.Description, "0 free of 2") {
		t.Errorf("a third instance: %+v", c.Status.Operation)
	}
	w.update("si-a", func(s *v1alpha1.InstanceState) { s.Parameters = raw(strings.Replace(one, "1883", "1884", 1)) })
	if again := port("si-a"); again != a {
		t.Errorf("an update changes the port from %d to %d", a, again)
	}
	w.deprovision("si-b")
	for !w.gone("si-b") {
		_, err := w.pass("si-b")
		w.must(err)
	}
	if got := port("si-c"); got != b {
		t.Errorf("the third instance has the port %d, want %d", got, b)
	}
}

func TestARefusedMoveIsNotRepeatedWhileItIsUndone(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.provision("si-web", "plan-web", "")
	w.passes("si-web")
	w.cluster("us", 8)
	w.cluster("asia", 1)
	w.driver.fail("deliver us", &delivery.RefusedError{Reason: "web: 0 of 1 pods ready on us"})
	w.driver.fail("remove us", &delivery.PendingError{Step: "delete namespace"})
	w.drain("eu")
	_, err := w.pass("si-web")
	w.must(err)
	if refused := w.instance("si-web"); !refused.Status.IsStranded() {
		t.Fatal("the refusal is not remembered")
	} else {
		w.wantLeft(refused, 2, "us")
	}
	w.driver.called()
	w.after(5 * time.Second)
	_, err = w.pass("si-web")
	w.must(err)
	if calls := w.driver.called(); slices.Contains(calls, "deliver us") {
		t.Errorf("while the move is undone, there are the calls %v", calls)
	}
	w.driver.fail("remove us", nil)
	_, err = w.pass("si-web")
	w.must(err)
	a := w.instance("si-web")
	w.wantOn(a, "eu")
	if w.wantLeft(a, 0); a.Status.Operation.Failing != nil || !a.Status.IsStranded() || a.Status.Operation.State != v1alpha1.StateSucceeded {
		t.Errorf("after that, it says %+v and %+v", a.Status.Operation, a.Status.Conditions)
	}
}

func TestPoliciesDecideWhichImagesRun(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	w.must(w.hub.Create(t.Context(), &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "images"},
		Spec: v1alpha1.PlacementPolicySpec{Require: []v1alpha1.PolicyRule{{
			Name: "our-registry", Expression: "request.images.all(i, i.startsWith('registry.example/'))",
		}}},
	}))
	w.provision("si-web", "plan-web", "")
	w.wantOperation(w.passes("si-web"), v1alpha1.OperationProvision, v1alpha1.StateInProgress, "our-registry")
}

// A hidden parameter is rendered as it was given, and is in no field of the instance.
func TestHiddenParametersAreOpened(t *testing.T) {
	w := newWorkloadWorld(t)
	w.cluster("eu", 8)
	own := workload.Parameters{Namespace: w.namespace, Name: "si-a", Keys: w.reconciler.keys}
	plan, err := w.reconciler.plan("service-compute", "plan-hiding")
	w.must(err)
	sealed, err := own.Sealed(plan.HiddenParameters(nil), []byte(`{"key": {"pem": "hunter2-hunter2"}}`))
	w.must(err)
	w.provision("si-a", "plan-hiding", string(sealed))
	a := w.passes("si-a")
	w.wantOperation(a, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	if text, _ := json.Marshal(a); bytes.Contains(text, []byte("hunter2")) {
		t.Errorf("the instance has it in clear: %s", text)
	}
}
