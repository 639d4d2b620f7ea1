package controller

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// workloads are plans of one component: with as many pods of one core as the consumer chooses, in
// an edition; and with a volume.
const workloads = `
- id: plan-web
  name: web
  description: Web.
  kind: workload
  maximumPollingDurationSeconds: 60
  maintenanceInfo: {version: EDITION.0.0}
  workload:
    parameters: {replicas: {type: integer, minimum: 0, default: 1}}
    secrets: [{name: key}, {name: keyEDITION}]
    components:
    - name: web
      container: {image: "web:EDITION", replicas: "${parameters.replicas}", resources: {cpu: 1, memory: 1Gi}}
- id: plan-db
  name: db
  description: Database.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload:
    components:
    - name: db
      container:
        image: db
        volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Ki}]
        resources: {cpu: 1, memory: 1Gi}
- id: plan-kept
  name: kept
  description: Database that can be backed up.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload:
    parameters: {size: {type: integer, default: 1}}
    components:
    - name: db
      container:
        image: db
        volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Ki}]
        backup: &copy {image: db, command: [copy, "${target.url}/${backup.id}"], resources: {cpu: 1, memory: 1Gi}}
        restore: *copy
        resources: {cpu: 1, memory: 1Gi}
- id: plan-app
  name: app
  description: Web and database, each on a cluster that suits it.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources: {components: [{name: web}, {name: db}]}
  workload:
    components:
    - name: web
      container: {image: web, resources: {cpu: 1, memory: 1Gi}}
    - name: db
      container:
        image: db
        volumes: [{name: data, mountPath: /data, storageClass: fast, size: 1Ki}]
        resources: {cpu: 1, memory: 1Gi}
- id: plan-tour
  name: tour
  description: A web server in one region, the rest in another.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources:
    components:
    - {name: web, selector: {matchLabels: &a {topology.kubernetes.io/region: a}}}
    - {name: api, selector: {matchLabels: &b {topology.kubernetes.io/region: b}}}
    - {name: db, selector: {matchLabels: *b}}
  workload: &tour
    components:
    - {name: web, container: &small {image: web, replicas: 0, resources: {cpu: 1, memory: 1Gi}}}
    - {name: api, container: *small}
    - {name: db, container: *small}
- id: plan-moved
  name: moved
  description: The same, with the api beside the web server.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources:
    components:
    - {name: web, selector: {matchLabels: *a}}
    - {name: api, selector: {matchLabels: *a}}
    - {name: db, selector: {matchLabels: *b}}
  workload: *tour
- id: plan-shares
  name: shares
  description: A web server divided over clusters.
  kind: workload
  maximumPollingDurationSeconds: 60
  resources: {clusters: 2, maxClusters: 3, replicas: {count: 4, max: 8}}
  workload:
    components:
    - name: web
      container: {image: web, replicas: "${cluster.replicas}", resources: {cpu: 1, memory: 1Gi}}
- id: plan-hiding
  name: hiding
  description: What it is given is hidden.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload:
    parameters: {key: {type: object, writeOnly: true, required: [pem], properties: {pem: {type: string, minLength: 8}}}}
    required: [key]
    components:
    - name: web
      container: {image: web, env: {KEY: "${parameters.key.pem}"}, resources: {cpu: 1, memory: 1Gi}}
- id: plan-room
  name: room
  description: Room for what the consumer runs.
  kind: resources
  resources: {limits: {cpu: "1"}, exposure: {hosts: 2}}
- id: plan-site
  name: site
  description: Site.
  kind: workload
  maximumPollingDurationSeconds: 60
  workload:
    parameters: {name: {type: string, default: ""}}
    components:
    - name: web
      ports: [{name: http, port: 80, reach: public, host: "${parameters.name}"}]
      container: {image: web, resources: {cpu: 1, memory: 1Gi}}
`

// sellWorkloads puts the plans into the catalog.
func (w *world) sellWorkloads(edition string) {
	w.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "service-compute", Name: "compute", Description: "Workloads.", Bindable: true, PlanUpdateable: true}
	document := strings.ReplaceAll(workloads, "EDITION", edition)
	w.must(yaml.UnmarshalStrict([]byte(document), &spec.Plans))
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	w.must(err)
	w.reconciler.plan = snapshot.Plan
}

// newWorkloadWorld is a world that sells workloads.
func newWorkloadWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	w.must(err)
	w.reconciler.keys = keys
	w.sellWorkloads("1")
	return w
}

// secrets of an instance, which must not be readable in its status.
func (w *world) secrets(instance *v1alpha1.ServiceInstance) workload.Secrets {
	w.Helper()
	secrets, err := workload.UnsealInstance(instance, w.reconciler.keys)
	w.must(err)
	text, err := json.Marshal(instance)
	w.must(err)
	for name, secret := range secrets {
		if bytes.Contains(text, secret.Reveal()) {
			w.Errorf("the secret %s is in the instance", name)
		}
	}
	return secrets
}

func image(d *v1alpha1.Decision) string { return d.Workload.Components[0].Container.Image }

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
	if f := w.instance("si-web").Status.Operation.Failing; f == nil {
		t.Fatal("the refusal is not remembered")
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
	if a.Status.Operation.Failing != nil || !a.Status.IsStranded() || a.Status.Operation.State != v1alpha1.StateSucceeded {
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
	sealed, err := own.Sealed(plan.Workload, []byte(`{"key": {"pem": "hunter2-hunter2"}}`))
	w.must(err)
	w.provision("si-a", "plan-hiding", string(sealed))
	a := w.passes("si-a")
	w.wantOperation(a, v1alpha1.OperationProvision, v1alpha1.StateSucceeded, "")
	if text, _ := json.Marshal(a); bytes.Contains(text, []byte("hunter2")) {
		t.Errorf("the instance has it in clear: %s", text)
	}
}
