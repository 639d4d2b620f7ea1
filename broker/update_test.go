package broker

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// patch is the body of a valid update.
func patch(fields ...any) object { return with(object{"service_id": service}, fields...) }

func (f *fixture) planOf(id string) any {
	f.t.Helper()
	return f.want(http.StatusOK, "GET", "/v2/service_instances/"+id, nil).body["plan_id"]
}

func TestUpdate(t *testing.T) {
	f := newFixture(t)

	t.Run("a change of plan is accepted once, whoever repeats it, and carried out", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("up", planSmall)
		f.fake.does("up", hold)
		change := patch("plan_id", planLarge, "previous_values", object{"plan_id": "whatever"})
		first := f.want(http.StatusAccepted, "PATCH", instancePath("up"), change)
		if first.operation() != "update-2" {
			t.Errorf("operation %q", first.operation())
		}
		again := f.want(http.StatusAccepted, "PATCH", instancePath("up"), change)
		if again.operation() != first.operation() {
			t.Errorf("operation %q, want %q", again.operation(), first.operation())
		}
		f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PATCH", instancePath("up"), patch("plan_id", planApp))
		f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PATCH", instancePath("up"), patch())
		f.fake.does("up", succeed)
		if last := f.finished("up", first.operation()); last.body["state"] != "succeeded" {
			t.Errorf("last operation %s", last)
		}
		if got := f.planOf("up"); got != planLarge {
			t.Errorf("plan %v", got)
		}
		if got := f.instance("cf-eu", "up").Spec.Desired.MaintenanceVersion; got != "2.0.0" {
			t.Errorf("maintenance version %s, want the new plan's", got)
		}
		f.want(http.StatusOK, "PUT", instancePath("up"), order(planLarge))
		f.refused(http.StatusConflict, "Conflict", "PUT", instancePath("up"), order(planSmall))
	})

	t.Run("what changes nothing is 200 and writes nothing", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("same", planLarge, "parameters", object{"clusters": 2}, "context", object{"platform": "cloudfoundry"})
		before := f.listing()
		for _, body := range []object{
			patch(), patch("plan_id", planLarge), patch("parameters", object{"clusters": 2.0}), patch("context", object{"platform": "cloudfoundry"}),
			patch("maintenance_info", object{}), patch("maintenance_info", object{"version": "2.0.0"}), patch("parameters", nil),
		} {
			f.want(http.StatusOK, "PATCH", "/v2/service_instances/same", body)
		}
		if f.listing() != before {
			t.Error("something was written")
		}
	})

	t.Run("a new context is recorded before the answer, without accepts_incomplete", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("named", planSmall, "context", object{"platform": "cloudfoundry", "instance_name": "a"})
		f.want(http.StatusOK, "PATCH", "/v2/service_instances/named", patch("context", object{"platform": "cloudfoundry", "instance_name": "b"}))
		if got := string(f.instance("cf-eu", "named").Status.Delivered.State.Context.Raw); !strings.Contains(got, `"b"`) {
			t.Errorf("recorded context %s", got)
		}
	})

	t.Run("a new context with the parameters that there are, in other words, changes the context alone", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("worded", planSmall, "context", object{"platform": "cloudfoundry", "instance_name": "a"})
		f.want(http.StatusOK, "PATCH", "/v2/service_instances/worded", patch("context", object{"platform": "cloudfoundry", "instance_name": "b"}, "parameters", object{}))
		if got := f.instance("cf-eu", "worded").Spec.Desired; got.Parameters != nil || !strings.Contains(string(got.Context.Raw), `"b"`) {
			t.Errorf("the controller is to deliver parameters %s and context %s", got.Raw(), got.Context.Raw)
		}
	})

	t.Run("a context that is not recorded is an error", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("unnamed", planSmall, "context", object{"platform": "cloudfoundry", "instance_name": "a"})
		f.fake.does("unnamed", fail)
		refused := f.refused(http.StatusInternalServerError, "OperationFailed", "PATCH", "/v2/service_instances/unnamed", patch("context", object{"platform": "cloudfoundry", "instance_name": "b"}))
		if says := refused.body["description"].(string); refused.body["instance_usable"] != true || refused.body["update_repeatable"] != true || !strings.Contains(says, "no cluster has so much") {
			t.Errorf("it says %s", refused)
		}
	})

	t.Run("parameters replace those there were, and stay when absent", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("params", planLarge, "parameters", object{"clusters": 2, "selector": object{"region": "eu"}})
		a := f.want(http.StatusAccepted, "PATCH", instancePath("params"), patch("parameters", object{"clusters": 3}))
		f.finished("params", a.operation())
		got := f.want(http.StatusOK, "GET", "/v2/service_instances/params", nil).body["parameters"]
		if !reflect.DeepEqual(got, object{"clusters": 3.0}) {
			t.Errorf("parameters %v", got)
		}
		refused := f.refused(http.StatusUnprocessableEntity, "ParametersConflict", "PATCH", instancePath("params"), patch("plan_id", planSmall))
		if !strings.Contains(refused.body["description"].(string), "/clusters") {
			t.Errorf("description %q does not name the parameter", refused.body["description"])
		}
		a = f.want(http.StatusAccepted, "PATCH", instancePath("params"), patch("plan_id", planSmall, "parameters", object{}))
		f.finished("params", a.operation())
	})

	t.Run("a parameter that is null is dropped, for clients that leave an empty object out", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("nulls", planLarge, "parameters", object{"clusters": 2, "selector": object{"region": "eu"}})
		a := f.want(http.StatusAccepted, "PATCH", instancePath("nulls"), patch("plan_id", planSmall, "parameters", object{"clusters": nil, "selector": nil}))
		f.finished("nulls", a.operation())
		if got := f.want(http.StatusOK, "GET", "/v2/service_instances/nulls", nil); len(got.body["parameters"].(object)) != 0 {
			t.Errorf("parameters %v", got.body["parameters"])
		}
	})

	t.Run("its parameters are checked by the schema of an update, which is that of a provision if there is no other", func(t *testing.T) {
		f := f.in(t)
		defer f.sell(offerings()...)
		sells := func(create, update string) {
			o := offerings()
			s := &v1alpha1.PlanSchemas{InstanceCreate: extension([]byte(create))}
			if update != "" {
				s.InstanceUpdate = extension([]byte(update))
			}
			o[0].Status.Accepted.Plans[1].Schemas = s
			f.sell(o...)
		}
		f.provisioned("checked", planLarge, "parameters", object{"clusters": 2})
		path, more := instancePath("checked"), patch("parameters", object{"clusters": 3})
		sells(`{"properties": {"clusters": {"maximum": 2}}, "required": ["clusters"]}`, "")
		f.refused(http.StatusBadRequest, "BadRequest", "PATCH", path, more)
		f.refused(http.StatusBadRequest, "BadRequest", "PATCH", path, patch("parameters", object{"selector": object{"region": "eu"}}))
		sells(`{"properties": {"clusters": {"maximum": 2}}, "required": ["clusters"]}`, `{"properties": {"clusters": {"maximum": 3}}}`)
		f.finished("checked", f.want(http.StatusAccepted, "PATCH", path, more).operation())
		f.finished("checked", f.want(http.StatusAccepted, "PATCH", path, patch("parameters", object{})).operation())
	})

	t.Run("a failed one leaves no trace and may be repeated", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("fails", planSmall)
		f.fake.does("fails", fail)
		change := patch("plan_id", planLarge)
		first := f.want(http.StatusAccepted, "PATCH", instancePath("fails"), change)
		last := f.finished("fails", first.operation())
		want := object{"state": "failed", "description": "no cluster has so much", "instance_usable": true, "update_repeatable": true}
		if !reflect.DeepEqual(last.body, want) {
			t.Errorf("last operation %s", last)
		}
		old := f.do("GET", "/v2/service_instances/fails/last_operation", nil, header(headerVersion, "2.15"))
		if _, there := old.body["instance_usable"]; there {
			t.Errorf("2.15: last operation %s", old)
		}
		if got := f.planOf("fails"); got != planSmall {
			t.Errorf("plan %v after a failed update", got)
		}
		f.want(http.StatusOK, "PUT", instancePath("fails"), order(planSmall))
		f.want(http.StatusCreated, "PUT", bindingPath("fails", "b"), binding(planSmall))
		f.fake.does("fails", succeed)
		second := f.want(http.StatusAccepted, "PATCH", instancePath("fails"), change)
		if second.operation() != "update-3" {
			t.Errorf("operation %q, want update-3", second.operation())
		}
		if got := f.instance("cf-eu", "fails").Spec.Attempt; got != 1 {
			t.Errorf("it was tried again %d times", got)
		}
		f.finished("fails", second.operation())
		if got := f.planOf("fails"); got != planLarge {
			t.Errorf("plan %v", got)
		}
	})

	t.Run("a failed one can be taken back", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("back", planSmall)
		f.fake.does("back", fail)
		a := f.want(http.StatusAccepted, "PATCH", instancePath("back"), patch("plan_id", planLarge))
		f.finished("back", a.operation())
		f.fake.does("back", succeed)
		f.want(http.StatusOK, "PATCH", "/v2/service_instances/back", patch("plan_id", planSmall))
		if got := f.instance("cf-eu", "back").Spec.Desired.PlanID; got != planSmall {
			t.Errorf("desired plan %s", got)
		}
	})

	t.Run("it is refused", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("fixed", planFixed)
		f.provisioned("firm", planSmall)
		f.fake.does("young", hold)
		f.want(http.StatusAccepted, "PUT", instancePath("young"), order(planSmall))
		f.fake.does("stillborn", fail)
		f.finished("stillborn", f.want(http.StatusAccepted, "PUT", instancePath("stillborn"), order(planSmall)).operation())
		f.provisioned("dying", planSmall)
		f.fake.does("dying", hold)
		f.want(http.StatusAccepted, "DELETE", instancePath("dying")+"&"+deletion(planSmall), nil)
		before := f.listing()
		for name, row := range map[string]struct {
			id     string
			body   object
			status int
			code   string
		}{
			"for a plan that cannot be left":            {"fixed", patch("plan_id", planSmall), 422, "PlanChangeNotSupported"},
			"for an unknown plan":                       {"firm", patch("plan_id", "nothing"), 400, "BadRequest"},
			"for a plan of another service":             {"firm", patch("plan_id", planOther), 400, "BadRequest"},
			"for a plan that the platform does not see": {"firm", patch("plan_id", planSecret), 400, "BadRequest"},
			"for a hidden plan that it cannot become":   {"fixed", patch("plan_id", planSecret), 400, "BadRequest"},
			"for another service":                       {"firm", patch("service_id", otherService), 400, "BadRequest"},
			"for parameters the plan does not take":     {"firm", patch("parameters", object{"clusters": 2}), 400, "BadRequest"},
			"for other maintenance_info":                {"firm", patch("maintenance_info", object{"version": "9.9.9"}), 422, "MaintenanceInfoConflict"},
			"for the old plan's maintenance_info":       {"firm", patch("plan_id", planLarge, "maintenance_info", object{"version": "1.0.0"}), 422, "MaintenanceInfoConflict"},
			"for nobody's instance":                     {"nobody", patch("plan_id", planLarge), 404, "NotFound"},
			"after a provision that failed":             {"stillborn", patch("plan_id", planLarge), 422, "NotProvisioned"},
			"while the provision is in progress":        {"young", patch("plan_id", planLarge), 422, "ConcurrencyError"},
			"while the instance is being deleted":       {"dying", patch(), 422, "ConcurrencyError"},
		} {
			t.Run(name, func(t *testing.T) { f.in(t).refused(row.status, row.code, "PATCH", instancePath(row.id), row.body) })
		}
		f.refused(422, "AsyncRequired", "PATCH", "/v2/service_instances/firm", patch("plan_id", planLarge))
		hidden := f.do("PATCH", instancePath("fixed"), patch("plan_id", planSecret))
		if unknown := f.do("PATCH", instancePath("fixed"), patch("plan_id", "nothing")); described(hidden, planSecret) != described(unknown, "nothing") {
			t.Errorf("of a hidden plan it says %s, of an unknown one %s", hidden, unknown)
		}
		if f.listing() != before {
			t.Error("something was changed")
		}
	})
}

func TestLastOperation(t *testing.T) {
	f := newFixture(t)
	f.provisioned("done", planSmall)
	f.fake.does("young", hold)
	f.want(http.StatusAccepted, "PUT", instancePath("young"), order(planSmall))
	poll := func(id string) string { return "/v2/service_instances/" + id + "/last_operation" }
	given := &server{Options: Options{Keys: f.keys}}
	deprovisioned := func(id string) string {
		return given.token(&metav1.ObjectMeta{Name: v1alpha1.InstanceName("cf-eu", id)}, v1alpha1.Operation{Type: v1alpha1.OperationDeprovision, Generation: 2})
	}
	unbound := given.token(&metav1.ObjectMeta{Name: v1alpha1.BindingName("cf-eu", "done", "nobody")}, v1alpha1.Operation{Type: v1alpha1.OperationUnbind, Generation: 2})

	for name, row := range map[string]struct {
		path   string
		status int
		state  any
	}{
		"the provision":                         {poll("done") + "?operation=provision-1&" + deletion(planSmall), 200, "succeeded"},
		"no operation":                          {poll("done"), 200, "succeeded"},
		"an empty operation":                    {poll("done") + "?operation=", 200, "succeeded"},
		"a foreign operation":                   {poll("done") + "?operation=task_10%F0%9F%92%A3", 200, "succeeded"},
		"an operation of the future":            {poll("done") + "?operation=update-99", 200, "succeeded"},
		"another plan":                          {poll("done") + "?plan_id=" + planLarge, 200, "succeeded"},
		"an earlier deletion of the same id":    {poll("done") + "?operation=" + deprovisioned("done"), 410, nil},
		"a deletion that was never asked for":   {poll("done") + "?operation=deprovision-99", 200, "succeeded"},
		"a deletion of another's":               {poll("done") + "?operation=" + deprovisioned("nobody"), 200, "succeeded"},
		"in progress":                           {poll("young") + "?operation=provision-1", 200, "in progress"},
		"nobody's provision":                    {poll("nobody") + "?operation=provision-1", 404, nil},
		"nobody's update":                       {poll("nobody") + "?operation=update-2", 404, nil},
		"nobody's anything":                     {poll("nobody"), 404, nil},
		"a deletion that is over":               {poll("nobody") + "?operation=" + deprovisioned("nobody"), 410, nil},
		"nobody's deletion":                     {poll("nobody") + "?operation=deprovision-77", 404, nil},
		"nobody's deletion, with a proof":       {poll("nobody") + "?operation=deprovision-77" + strings.TrimPrefix(deprovisioned("nobody"), "deprovision-2"), 404, nil},
		"two operations":                        {poll("done") + "?operation=a&operation=b", 400, nil},
		"two operations of a binding":           {bindingPath("done", "nobody") + "/last_operation?operation=a&operation=b", 400, nil},
		"nobody's binding":                      {bindingPath("done", "nobody") + "/last_operation", 404, nil},
		"nobody's deletion of a binding":        {bindingPath("done", "nobody") + "/last_operation?operation=unbind-2", 404, nil},
		"a deletion of a binding, that is over": {bindingPath("done", "nobody") + "/last_operation?operation=" + unbound, 410, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if a := f.in(t).want(row.status, "GET", row.path, nil); a.body["state"] != row.state {
				t.Errorf("got %s, want state %v", a, row.state)
			}
		})
	}

	t.Run("asks to be polled again while in progress only", func(t *testing.T) {
		if got := f.do("GET", poll("young"), nil).header.Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After %q of a young operation, want 1", got)
		}
		if got := f.do("GET", poll("done"), nil).header.Get("Retry-After"); got != "" {
			t.Errorf("Retry-After %q of a finished operation", got)
		}
	})

	t.Run("a deletion that is over has succeeded for platforms that want it so", func(t *testing.T) {
		f := f.in(t)
		f.want(http.StatusAccepted, "PUT", instancePath("theirs"), order(planSmall), asK8s)
		deleted := f.want(http.StatusAccepted, "DELETE", instancePath("theirs")+"&"+deletion(planSmall), nil, asK8s)
		for _, query := range []string{"?operation=" + deleted.operation(), "", "?operation="} {
			if last := f.finished("theirs", strings.TrimPrefix(query, "?operation="), asK8s); last.body["state"] != "succeeded" {
				t.Errorf("polled with %q: %s", query, last)
			}
		}
		f.refused(http.StatusNotFound, "NotFound", "GET", poll("theirs")+"?operation=deprovision-2", nil, asK8s)
	})

	t.Run("a deprovision halts a provision, and only polls that name it hear of it", func(t *testing.T) {
		f := f.in(t)
		a := f.want(http.StatusAccepted, "DELETE", instancePath("young")+"&"+deletion(planSmall), nil)
		if !strings.HasPrefix(a.operation(), "deprovision-2.") {
			t.Errorf("operation %q", a.operation())
		}
		if again := f.want(http.StatusAccepted, "DELETE", instancePath("young")+"&"+deletion(planSmall), nil); again.operation() != a.operation() {
			t.Errorf("operation %q the second time, want %q", again.operation(), a.operation())
		}
		if last := f.want(http.StatusOK, "GET", poll("young")+"?operation=provision-1", nil); last.body["state"] != "failed" {
			t.Errorf("the provision: %s", last)
		}
		for _, query := range []string{"", "?operation=" + a.operation(), "?operation=deprovision-2"} {
			if last := f.want(http.StatusOK, "GET", poll("young")+query, nil); last.body["state"] != "in progress" {
				t.Errorf("%s: %s", query, last)
			}
		}
		f.fake.does("young", succeed)
		f.eventually("410", func() (answer, bool) {
			last := f.do("GET", poll("young")+"?operation="+a.operation(), nil)
			return last, last.status == http.StatusGone
		})
		f.want(http.StatusNotFound, "GET", poll("young")+"?operation=provision-1", nil)
		if gone := f.want(http.StatusGone, "DELETE", instancePath("young")+"&"+deletion(planSmall), nil); string(gone.raw) != "{}" {
			t.Errorf("410 with %s", gone.raw)
		}
	})

	t.Run("earlier operations keep their result", func(t *testing.T) {
		i := &v1alpha1.ServiceInstance{}
		i.Generation = 5
		i.Status.Delivered = &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Generation: 3}}
		i.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationUpdate, Generation: 5, State: v1alpha1.StateInProgress}
		for asked, want := range map[string]v1alpha1.OperationState{
			"provision-1": v1alpha1.StateSucceeded, "update-3": v1alpha1.StateSucceeded,
			"update-4": v1alpha1.StateFailed, "update-5": v1alpha1.StateInProgress,
		} {
			parsed, _ := v1alpha1.ParseOperationToken(asked)
			if got := instanceOperationAsked(i, parsed).State; got != want {
				t.Errorf("%s: %s, want %s", asked, got, want)
			}
		}
		again := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Generation: 2}} // a failed provision is tried again
		first, _ := v1alpha1.ParseOperationToken("provision-1")
		if got := instanceOperationAsked(again, first); got.State != v1alpha1.StateInProgress {
			t.Errorf("of a provision that is tried again: %+v", got)
		}
	})
}
