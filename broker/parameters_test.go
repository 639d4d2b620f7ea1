package broker

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

const planHiding = "plan-hiding"

// hiding makes the first offering sell a workload with two hidden parameters, of which one is
// required.
func hiding() v1alpha1.ServiceOffering {
	o := offerings()[0]
	schema := func(text string) v1alpha1.ParameterSchema {
		return v1alpha1.ParameterSchema{RawExtension: runtime.RawExtension{Raw: []byte(text)}}
	}
	plan := o.Status.Accepted.Plans[0]
	plan.ID, plan.Name, plan.Kind, plan.Resources = planHiding, "hiding", v1alpha1.PlanKindWorkload, nil
	plan.Workload = &v1alpha1.WorkloadPlan{
		Components: []v1alpha1.WorkloadComponent{{Name: "web"}},
		Parameters: map[string]v1alpha1.ParameterSchema{
			"registry": schema(`{"type": "object", "writeOnly": true}`),
			"key":      schema(`{"type": "string", "writeOnly": true}`),
			"size":     schema(`{"type": "integer"}`),
		},
		Required: []string{"registry"},
	}
	o.Status.Accepted.Plans = append(o.Status.Accepted.Plans, plan)
	return o
}

func TestHiddenParameters(t *testing.T) {
	f := newFixture(t)
	f.sell(hiding())
	const password = "hunter2-hunter2"
	registry := object{"username": "ann", "password": password}
	given := object{"registry": registry, "size": 1}
	path := "/v2/service_instances/hide"
	f.provisioned("hide", planHiding, "parameters", given)

	inForce := func() object {
		t.Helper()
		i := f.instance("cf-eu", "hide")
		opened, err := workload.ParametersOf(i, f.keys).Opened(i.Status.Delivered.State.Raw())
		if err != nil {
			t.Fatal(err)
		}
		var values object
		if err := json.Unmarshal(opened, &values); err != nil {
			t.Fatal(err)
		}
		return values
	}
	wantInForce := func(want object) {
		t.Helper()
		got, _ := json.Marshal(inForce())
		if text, _ := json.Marshal(want); string(got) != string(text) {
			t.Errorf("in force is %s, want %s", got, text)
		}
	}
	update := func(parameters object) {
		t.Helper()
		a := f.want(http.StatusAccepted, "PATCH", instancePath("hide"), patch("parameters", parameters))
		if last := f.finished("hide", a.operation()); last.body["state"] != "succeeded" {
			t.Fatal(last)
		}
	}
	wantInForce(given)
	if document, _ := json.Marshal(f.instance("cf-eu", "hide")); strings.Contains(string(document), password) || strings.Contains(string(document), "ann") {
		t.Errorf("the hub holds it in clear: %s", document)
	}
	if a := f.want(http.StatusOK, "GET", path, nil); strings.Contains(string(a.raw), "registry") || !strings.Contains(string(a.raw), `"size":1`) {
		t.Errorf("shown: %s", a)
	}

	// What is the same is the same, although nobody can read it.
	f.want(http.StatusOK, "PUT", instancePath("hide"), order(planHiding, "parameters", given))
	f.refused(http.StatusConflict, "Conflict", "PUT", instancePath("hide"), order(planHiding, "parameters", object{"registry": object{"username": "ann", "password": "other"}, "size": 1}))
	f.want(http.StatusOK, "PATCH", instancePath("hide"), patch("parameters", given))
	f.want(http.StatusOK, "PATCH", instancePath("hide"), patch("parameters", object{"size": 1}))

	// An update that does not name it keeps it; null drops it.
	update(object{"size": 2, "key": "a key"})
	wantInForce(object{"registry": registry, "size": 2, "key": "a key"})
	update(object{"size": 3, "key": nil})
	wantInForce(object{"registry": registry, "size": 3})
	f.want(http.StatusBadRequest, "PATCH", instancePath("hide"), patch("parameters", object{"registry": nil}))

	// An update in progress is the same when it is repeated.
	f.fake.does("hide", hold)
	change := patch("parameters", object{"key": "another"})
	first := f.want(http.StatusAccepted, "PATCH", instancePath("hide"), change)
	if again := f.want(http.StatusAccepted, "PATCH", instancePath("hide"), change); again.operation() != first.operation() {
		t.Errorf("operation %s, want %s", again.operation(), first.operation())
	}
	f.fake.does("hide", succeed)
	f.finished("hide", first.operation())
	wantInForce(object{"registry": registry, "key": "another"})

	// What stays counts for how much can be stored.
	long := strings.Repeat("x", 40<<10)
	f.provisioned("long", planHiding, "parameters", object{"registry": object{}, "key": long})
	f.refused(http.StatusRequestEntityTooLarge, "RequestTooLarge", "PATCH", instancePath("long"), patch("parameters", object{"registry": object{"more": long}}))
	f.want(http.StatusAccepted, "PATCH", instancePath("long"), patch("parameters", object{"registry": object{"more": long}, "key": nil}))

	// Nobody hands in what looks sealed.
	forged := f.want(http.StatusBadRequest, "PUT", instancePath("forged"), order(planHiding, "parameters", object{"registry": object{"sealed.sluice.dev": "AAAA"}}))
	if got := forged.body["description"]; got != "parameters: registry: the name sealed.sluice.dev is reserved for Sluice." {
		t.Errorf("description %q", got)
	}
	f.refused(http.StatusBadRequest, "BadRequest", "PATCH", instancePath("hide"), patch("parameters", object{"registry": object{"sealed.sluice.dev": "AAAA"}}))
	if strings.Contains(f.log.String(), password) {
		t.Error("the log has it in clear")
	}
}

// Hidden parameters of bindings are sealed, and cannot be fetched, of bindings from before the plan hid them either. A rotation
// takes them over.
func TestHiddenParametersOfBindings(t *testing.T) {
	f := newFixture(t)
	const password = "hunter2-hunter2"
	sell := func(described string) {
		o := offerings()[0]
		plan := o.Status.Accepted.Plans[0]
		plan.ID, plan.Name = planHiding, "hiding"
		plan.Schemas = &v1alpha1.PlanSchemas{BindingCreate: &runtime.RawExtension{Raw: []byte(`{"type": "object", ` + described + `}`)}}
		o.Status.Accepted.Plans = append(o.Status.Accepted.Plans, plan)
		f.sell(o)
	}
	sell(`"properties": {"key": {"type": "string"}}`)
	f.provisioned("hide", planHiding)
	given := binding(planHiding, "parameters", object{"key": password, "size": 1})
	f.want(http.StatusCreated, "PUT", bindingPath("hide", "before"), given)
	sell(`"properties": {"key": {"type": "string", "writeOnly": true}}`)
	f.want(http.StatusCreated, "PUT", bindingPath("hide", "b"), given)
	f.want(http.StatusCreated, "PUT", bindingPath("hide", "next"), object{"predecessor_binding_id": "b"})
	sell(`"properties": {"key": {"type": "string"}}`) // what was hidden stays hidden
	f.want(http.StatusCreated, "PUT", bindingPath("hide", "last"), object{"predecessor_binding_id": "next"})
	sell(`"patternProperties": {"^k": {"writeOnly": true}}`)
	f.want(http.StatusCreated, "PUT", bindingPath("hide", "pattern"), object{"predecessor_binding_id": "before"})
	for _, id := range []string{"b", "next", "last", "pattern"} {
		b := f.bindingOf("hide", id)
		opened, err := workload.BindingParametersOf(b, f.keys).Opened(b.Spec.Raw())
		if err != nil || !sameObject(opened, []byte(encoded(object{"key": password, "size": 1}))) {
			t.Errorf("%s has %s, %v", id, opened, err)
		}
		if document, _ := json.Marshal(b); strings.Contains(string(document), password) {
			t.Errorf("the hub holds that of %s in clear: %s", id, document)
		}
	}
	sell(`"properties": {"key": {"type": "string", "writeOnly": true}}`)
	for _, id := range []string{"before", "b", "next", "last"} {
		if a := f.want(http.StatusOK, "GET", bindingPath("hide", id), nil); strings.Contains(string(a.raw), "key") || !strings.Contains(string(a.raw), `"size":1`) {
			t.Errorf("shown of %s: %s", id, a)
		}
	}
	f.want(http.StatusOK, "PUT", bindingPath("hide", "before"), given)
	f.want(http.StatusOK, "PUT", bindingPath("hide", "b"), given)
	f.refused(http.StatusConflict, "Conflict", "PUT", bindingPath("hide", "b"), binding(planHiding, "parameters", object{"key": "other", "size": 1}))
	sell(`"properties": {"key": {"writeOnly": true}}`)
	f.refused(http.StatusBadRequest, "BadRequest", "PUT", bindingPath("hide", "forged"), binding(planHiding, "parameters", object{"key": object{"sealed.sluice.dev": "AAAA"}}))
	if strings.Contains(f.log.String(), password) {
		t.Error("the log has it in clear")
	}
}

// Of a plan of other brokers, all is sealed until the broker's schema is known, and what was sealed stays sealed once the
// schema, which hid it, has gone.
func TestSealedParametersOfBrokersStaySealed(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Options: Options{Keys: keys}}
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-1"}}
	const given = `{"password":"hunter2","size":1}`
	sealed, err := workload.ParametersOf(i, keys).Sealed([]string{"password"}, json.RawMessage(given))
	if err != nil {
		t.Fatal(err)
	}
	i.Status.Delivered = &v1alpha1.DeliveredState{State: v1alpha1.InstanceState{Parameters: &runtime.RawExtension{Raw: sealed}}}
	unread := &catalog.Plan{Plan: v1alpha1.Plan{Upstream: &v1alpha1.UpstreamPlan{}}, Unread: true}
	stored, err := s.stored(&v1alpha1.ServiceInstance{ObjectMeta: i.ObjectMeta}, unread, json.RawMessage(given))
	if err != nil || strings.Contains(string(stored.Raw), "hunter2") {
		t.Errorf("before the broker's schema is known, stored is %s, %v", stored.Raw, err)
	}
	if stored, err = s.stored(&v1alpha1.ServiceInstance{ObjectMeta: i.ObjectMeta}, unread, nil); err != nil || stored != nil {
		t.Errorf("without parameters, stored is %v, %v", stored, err)
	}
	for upstream, stays := range map[*v1alpha1.UpstreamPlan]bool{{}: true, nil: false} {
		stored, err := s.stored(i, &catalog.Plan{Plan: v1alpha1.Plan{Upstream: upstream}}, json.RawMessage(given))
		if err != nil || strings.Contains(string(stored.Raw), "hunter2") == stays {
			t.Errorf("stored is %s, %v", stored.Raw, err)
		}
	}
}
