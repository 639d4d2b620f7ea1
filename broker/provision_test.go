package broker

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// instance reads what the broker has stored under a platform's id.
func (f *fixture) instance(platform, id string) *v1alpha1.ServiceInstance {
	f.t.Helper()
	i := &v1alpha1.ServiceInstance{}
	if err := f.hub.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.InstanceName(platform, id)}, i); err != nil {
		f.t.Fatal(err)
	}
	return i
}

func TestProvision(t *testing.T) {
	f := newFixture(t)

	t.Run("a new instance is accepted, with its operation and dashboard", func(t *testing.T) {
		f := f.in(t)
		a := f.want(http.StatusAccepted, "PUT", instancePath("new"), order(planSmall))
		if a.operation() != "provision-1" {
			t.Errorf("operation %q", a.operation())
		}
		name := v1alpha1.InstanceName("cf-eu", "new")
		if want := "https://dashboard.example.com/cf-eu/new/" + name; a.body["dashboard_url"] != want {
			t.Errorf("dashboard_url %v, want %s", a.body["dashboard_url"], want)
		}
		i := f.instance("cf-eu", "new")
		if i.Spec.Desired.MaintenanceVersion != "1.0.0" || i.Spec.Platform != "cf-eu" || i.Spec.OrganizationGUID != "org" {
			t.Errorf("stored %+v", i.Spec)
		}
		if len(i.Finalizers) != 1 || i.Finalizers[0] != v1alpha1.Finalizer {
			t.Errorf("finalizers %v", i.Finalizers)
		}
	})

	t.Run("an identical one is 202 with the same operation while in progress and 200 when done", func(t *testing.T) {
		f := f.in(t)
		f.fake.does("twice", hold)
		body := order(planLarge, "parameters", object{"clusters": 2}, "context", object{"platform": "cloudfoundry", "instance_name": "a"})
		first := f.want(http.StatusAccepted, "PUT", instancePath("twice"), body)
		again := f.want(http.StatusAccepted, "PUT", instancePath("twice"), body)
		if !reflect.DeepEqual(first.body, again.body) {
			t.Errorf("got %s, want %s", again, first)
		}
		f.fake.does("twice", succeed)
		f.finished("twice", first.operation())
		done := f.want(http.StatusOK, "PUT", instancePath("twice"), body)
		if done.operation() != "" {
			t.Errorf("200 with an operation: %s", done)
		}
		f.want(http.StatusOK, "PUT", "/v2/service_instances/twice", with(body, "context", object{"platform": "cloudfoundry", "instance_name": "renamed"}))
	})

	f.provisioned("there", planLarge, "parameters", object{"clusters": 2, "selector": object{"region": "eu"}},
		"context", object{"platform": "cloudfoundry", "organization_guid": "org"})
	there := order(planLarge, "parameters", object{"selector": object{"region": "eu"}, "clusters": 2.0},
		"context", object{"platform": "cloudfoundry", "organization_guid": "org"})
	for name, change := range map[string][]any{
		"plan":         {"plan_id", planSmall, "parameters", absent},
		"organization": {"organization_guid", "another"},
		"space":        {"space_guid", "another"},
		"parameters":   {"parameters", object{"clusters": 3}},
		"home":         {"context", object{"platform": "kubernetes"}},
	} {
		t.Run("another "+name+" is a conflict", func(t *testing.T) {
			f := f.in(t)
			before := f.listing()
			f.refused(http.StatusConflict, "Conflict", "PUT", instancePath("there"), with(there, change...))
			if f.listing() != before {
				t.Error("something was changed")
			}
		})
	}
	for name, change := range map[string][]any{
		"nothing":                     {},
		"an empty maintenance_info":   {"maintenance_info", object{}},
		"its maintenance_info":        {"maintenance_info", object{"version": "2.0.0"}},
		"a context with another name": {"context", object{"platform": "cloudfoundry", "organization_guid": "org", "instance_name": "b"}},
		"unknown fields":              {"x-more", []int{1}},
	} {
		t.Run("identical but for "+name+" is 200", func(t *testing.T) {
			f := f.in(t)
			f.want(http.StatusOK, "PUT", instancePath("there"), with(there, change...))
		})
	}

	t.Run("a failed one is tried again by an identical request", func(t *testing.T) {
		f := f.in(t)
		f.fake.does("unlucky", fail)
		first := f.want(http.StatusAccepted, "PUT", instancePath("unlucky"), order(planSmall))
		last := f.finished("unlucky", first.operation())
		if last.body["state"] != "failed" || last.body["description"] != "no cluster has so much" {
			t.Fatalf("last operation %s", last)
		}
		if _, there := last.body["instance_usable"]; there {
			t.Errorf("instance_usable after a failed provision: %s", last)
		}
		f.refused(http.StatusNotFound, "NotFound", "GET", "/v2/service_instances/unlucky", nil)
		f.refused(http.StatusUnprocessableEntity, "NotProvisioned", "PATCH", instancePath("unlucky"), object{"service_id": service})
		f.refused(http.StatusConflict, "Conflict", "PUT", instancePath("unlucky"), order(planLarge))
		f.refused(http.StatusUnprocessableEntity, "AsyncRequired", "PUT", "/v2/service_instances/unlucky", order(planSmall))
		f.fake.does("unlucky", succeed)
		second := f.want(http.StatusAccepted, "PUT", instancePath("unlucky"), order(planSmall))
		if second.operation() != "provision-2" {
			t.Errorf("operation %q, want provision-2", second.operation())
		}
		if got := f.instance("cf-eu", "unlucky").Spec.Attempt; got != 1 {
			t.Errorf("it was tried again %d times", got)
		}
		if last := f.finished("unlucky", second.operation()); last.body["state"] != "succeeded" {
			t.Errorf("last operation %s", last)
		}
	})

	t.Run("one that is being deleted is a concurrency error", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("leaving", planSmall)
		f.fake.does("leaving", hold)
		f.want(http.StatusAccepted, "DELETE", instancePath("leaving")+"&"+deletion(planSmall), nil)
		a := f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PUT", instancePath("leaving"), order(planSmall))
		if a.body["description"] != "The Service Broker does not support concurrent requests that mutate the same resource." {
			t.Errorf("description %q", a.body["description"])
		}
		f.fake.does("leaving", succeed)
		f.eventually("the instance to be gone", func() (answer, bool) {
			a := f.do("DELETE", instancePath("leaving")+"&"+deletion(planSmall), nil)
			return a, a.status == http.StatusGone
		})
		f.provisioned("leaving", planLarge)
	})

	t.Run("an accepted request survives the client's hanging up", func(t *testing.T) {
		f := f.in(t)
		ctx, hangUp := context.WithCancel(context.Background())
		hangUp()
		f.doWith(ctx, "PUT", instancePath("hung-up"), order(planSmall))
		f.instance("cf-eu", "hung-up")
	})

	t.Run("platforms have ids of their own", func(t *testing.T) {
		f := f.in(t)
		f.want(http.StatusAccepted, "PUT", instancePath("there"), order(planSecret), asK8s)
		f.finished("there", "provision-1", asK8s)
		f.want(http.StatusOK, "PUT", instancePath("there"), order(planSecret), asK8s)
		f.want(http.StatusOK, "PUT", instancePath("there"), there)
		if got := f.want(http.StatusOK, "GET", "/v2/service_instances/there", nil).body["plan_id"]; got != planLarge {
			t.Errorf("plan %v", got)
		}
	})

	t.Run("a withdrawn offering takes no new instances and keeps serving the old ones", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("old", planSmall)
		f.fake.does("stillborn", fail)
		f.finished("stillborn", f.want(http.StatusAccepted, "PUT", instancePath("stillborn"), order(planSmall)).operation())
		withdrawn := offerings()
		now := f.instance("cf-eu", "old").CreationTimestamp
		withdrawn[0].DeletionTimestamp = &now
		f.sell(withdrawn...)
		defer f.sell(offerings()...)
		f.refused(http.StatusBadRequest, "BadRequest", "PUT", instancePath("too-late"), order(planSmall))
		f.refused(http.StatusBadRequest, "BadRequest", "PUT", instancePath("stillborn"), order(planSmall))
		f.want(http.StatusOK, "PUT", instancePath("old"), order(planSmall))
		f.want(http.StatusCreated, "PUT", bindingPath("old", "b"), binding(planSmall))
		if services := f.want(http.StatusOK, "GET", "/v2/catalog", nil).body["services"].([]any); len(services) != 1 {
			t.Errorf("%d services in the catalog", len(services))
		}
	})

	t.Run("an instance whose plan has new maintenance_info is still recognised", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("settled", planSmall, "maintenance_info", object{"version": "1.0.0"})
		changed := offerings()
		*changed[0].Status.Accepted.Plans[0].MaintenanceInfo = v1alpha1.MaintenanceInfo{Version: "1.1.0", Description: "What is new"}
		f.sell(changed...)
		defer f.sell(offerings()...)
		f.want(http.StatusOK, "PUT", instancePath("settled"), order(planSmall, "maintenance_info", object{"version": "1.0.0"}))
		got := f.want(http.StatusOK, "GET", "/v2/service_instances/settled", nil).body["maintenance_info"]
		if want := (object{"version": "1.0.0"}); !reflect.DeepEqual(got, want) {
			t.Errorf("it has %v, want %v", got, want)
		}
		f.refused(http.StatusUnprocessableEntity, "MaintenanceInfoConflict", "PUT", instancePath("fresh"), order(planSmall, "maintenance_info", object{"version": "1.0.0"}))
	})
}

// A wrong value of a class variable is refused before anything is stored, with the name of the
// variable and the reason. The catalog shows the schema.
func TestClassVariablesAreChecked(t *testing.T) {
	f := newFixture(t)
	const plan = "plan-cluster"
	spec := &v1alpha1.ServiceOfferingSpec{ID: service, Name: "kubernetes", Description: "test", PlanUpdateable: true, Plans: []v1alpha1.Plan{{
		ID: plan, Name: "cluster", Description: "test", Kind: v1alpha1.PlanKindCluster,
		Cluster: &v1alpha1.ClusterPlan{Class: "fast", Versions: []string{"v1.34.4"}, Roles: []string{"view"}, Settable: []string{"workers"}},
	}}}
	management := v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverCAPI}}
	management.Status.Classes = []v1alpha1.ClusterClass{{
		Namespace: "default", Name: "fast", Variables: []v1alpha1.ClassVariable{{
			Name: "workers", Schema: runtime.RawExtension{Raw: []byte(`{"type":"object","properties":{"flavor":{"type":"string","enum":["m1.small","m1.large"]}}}`)},
		}},
	}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: spec}}}, []v1alpha1.MemberCluster{management}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.catalog.Replace(snapshot)

	flavor := func(value any) object {
		return object{"variables": object{"workers": object{"flavor": value}}}
	}
	shown := f.want(http.StatusOK, "GET", "/v2/catalog", nil)
	for _, operation := range []string{"create", "update"} {
		at := shown.body["services"].([]any)[0].(object)["plans"].([]any)[0].(object)["schemas"].(object)["service_instance"].(object)[operation].(object)["parameters"].(object)
		for _, name := range []string{"variables", "workers", "flavor"} {
			at, _ = at["properties"].(object)[name].(object)
		}
		if !reflect.DeepEqual(at["enum"], []any{"m1.small", "m1.large"}) {
			t.Errorf("schema of %s: %v", operation, at)
		}
	}
	refused := func(method, id string, body object) {
		t.Helper()
		a := f.refused(http.StatusBadRequest, "BadRequest", method, instancePath(id), body)
		for _, says := range []string{"/variables/workers/flavor", "must be one of 'm1.small', 'm1.large'"} {
			if description := a.body["description"].(string); !strings.Contains(description, says) {
				t.Errorf("%s: %q does not say %q", method, description, says)
			}
		}
	}
	before := f.listing()
	refused("PUT", "wrong", order(plan, "parameters", flavor("m9")))
	if f.listing() != before {
		t.Error("something was stored")
	}
	f.provisioned("right", plan, "parameters", flavor("m1.large"))
	refused("PATCH", "right", object{"service_id": service, "parameters": flavor("m9")})
}

func TestIDsMayHoldAnyCharacter(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{"team%2Fone", "team%252Fone", "a%20b+c", "%00", "...", ".%2F..", "%E5%AE%9E", "a%2Flast_operation"} {
		f.want(http.StatusAccepted, "PUT", instancePath(id), order(planSmall))
		f.finished(id, "provision-1")
		f.want(http.StatusCreated, "PUT", bindingPath(id, id), binding(planSmall))
		f.want(http.StatusOK, "GET", bindingPath(id, id), nil)
	}
	if got := f.instance("cf-eu", "team/one").Spec.InstanceID; got != "team/one" {
		t.Errorf("stored id %q", got)
	}
	f.instance("cf-eu", "team%2Fone")
	f.instance("cf-eu", "a b+c")
}

func TestFetchInstance(t *testing.T) {
	f := newFixture(t)
	cluster := &v1alpha1.MemberCluster{}
	cluster.Namespace, cluster.Name, cluster.Spec.Region, cluster.Spec.Driver = f.namespace, "eu-1", "europe", v1alpha1.DriverKube
	cluster.Spec.Access.SealedKubeconfig = []byte("sealed")
	if err := f.hub.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.hub.Delete(context.Background(), cluster) })
	f.provisioned("a", planLarge, "parameters", object{"clusters": 2})
	name := v1alpha1.InstanceName("cf-eu", "a")
	want := object{
		"service_id": service, "plan_id": planLarge, "parameters": object{"clusters": 2.0},
		"dashboard_url":    "https://dashboard.example.com/cf-eu/a/" + name,
		"maintenance_info": object{"version": "2.0.0", "description": "The second edition"},
		"metadata": object{
			"labels":     object{"sluice.dev/instance": name},
			"attributes": object{"clusters": "eu-1,eu-2", "regions": "europe"},
		},
	}
	if got := f.want(http.StatusOK, "GET", "/v2/service_instances/a?service_id=x&plan_id=y", nil).body; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	delete(want, "maintenance_info")
	delete(want, "metadata")
	if got := f.want(http.StatusOK, "GET", "/v2/service_instances/a", nil, header(headerVersion, "2.16")).body; !reflect.DeepEqual(got, want) {
		t.Errorf("2.16: got  %v\nwant %v", got, want)
	}

	f.fake.does("pending", hold)
	f.want(http.StatusAccepted, "PUT", instancePath("pending"), order(planSmall))
	f.refused(http.StatusNotFound, "NotFound", "GET", "/v2/service_instances/pending", nil)
	f.refused(http.StatusNotFound, "NotFound", "GET", "/v2/service_instances/nobody", nil)
	f.fake.does("a", hold)
	f.want(http.StatusAccepted, "PATCH", instancePath("a"), object{"service_id": service, "parameters": object{"clusters": 3}})
	f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "GET", "/v2/service_instances/a", nil)
}
