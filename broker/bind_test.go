package broker

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// bindingOf reads a binding from the hub; nil if it does not exist.
func (f *fixture) bindingOf(id, bindingID string) *v1alpha1.ServiceBinding {
	f.t.Helper()
	b := &v1alpha1.ServiceBinding{}
	err := f.hub.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.BindingName("cf-eu", id, bindingID)}, b)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func TestBind(t *testing.T) {
	f := newFixture(t)
	f.provisioned("i", planSmall)

	t.Run("it is answered 201 with credentials, endpoints and expiry, and again 200 with the same", func(t *testing.T) {
		f := f.in(t)
		body := binding(planSmall, "app_guid", "app", "bind_resource", object{"app_guid": "app", "x": 1}, "context", object{"platform": "cloudfoundry"})
		first := f.want(http.StatusCreated, "PUT", bindingPath("i", "b"), body)
		credentials, _ := first.body["credentials"].(object)
		if !strings.HasPrefix(credentials["token"].(string), "secret-of-") {
			t.Errorf("credentials %v", credentials)
		}
		endpoints := []any{object{"host": "10.0.0.1", "ports": []any{"6443"}, "protocol": "tcp"}}
		if !reflect.DeepEqual(first.body["endpoints"], endpoints) {
			t.Errorf("endpoints %v", first.body["endpoints"])
		}
		form := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\dZ$`)
		metadata, _ := first.body["metadata"].(object)
		for _, field := range []string{"expires_at", "renew_before"} {
			if text, _ := metadata[field].(string); !form.MatchString(text) {
				t.Errorf("%s %v", field, metadata[field])
			}
		}
		if again := f.want(http.StatusOK, "PUT", bindingPath("i", "b")+"?accepts_incomplete=true", body); !reflect.DeepEqual(again.body, first.body) {
			t.Errorf("again %s, want %s", again, first)
		}
		if fetched := f.want(http.StatusOK, "GET", bindingPath("i", "b"), nil); !reflect.DeepEqual(fetched.body, first.body) {
			t.Errorf("fetched %s, want %s", fetched, first)
		}
		if last := f.want(http.StatusOK, "GET", bindingPath("i", "b")+"/last_operation", nil); last.body["state"] != "succeeded" {
			t.Errorf("last operation %s", last)
		}
		for version, fields := range map[string][]string{
			"2.14": {"credentials"}, "2.15": {"credentials", "endpoints"}, "2.16": {"credentials", "endpoints", "metadata"},
		} {
			got := f.want(http.StatusOK, "GET", bindingPath("i", "b"), nil, header(headerVersion, version)).body
			if len(got) != len(fields) {
				t.Errorf("%s: fields %v, want %v", version, got, fields)
			}
			if m, there := got["metadata"].(object); there && len(m) != 1 {
				t.Errorf("%s: metadata %v", version, m)
			}
		}
		before := f.listing()
		for _, different := range []object{
			with(body, "app_guid", "other"), with(body, "bind_resource", absent), with(body, "predecessor_binding_id", "b"),
			with(body, "context", object{"platform": "kubernetes"}), with(body, "plan_id", planOther),
		} {
			f.refused(http.StatusConflict, "Conflict", "PUT", bindingPath("i", "b"), different)
		}
		if f.listing() != before {
			t.Error("something was changed")
		}
		if strings.Contains(f.log.String(), "secret-of-") || strings.Contains(f.log.String(), credentials["token"].(string)) {
			t.Error("the log shows credentials")
		}
	})

	t.Run("it is refused", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("fixed", planFixed)
		f.provisioned("app", planApp)
		f.fake.does("young", hold)
		f.want(http.StatusAccepted, "PUT", instancePath("young"), order(planSmall))
		f.fake.does("stillborn", fail)
		a := f.want(http.StatusAccepted, "PUT", instancePath("stillborn"), order(planSmall))
		f.finished("stillborn", a.operation())
		f.provisioned("changing", planSmall)
		f.fake.does("changing", hold)
		f.want(http.StatusAccepted, "PATCH", instancePath("changing"), patch("plan_id", planLarge))
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
			"for nobody's instance":                  {"nobody", binding(planSmall), 404, "NotFound"},
			"for an instance that failed":            {"stillborn", binding(planSmall), 404, "NotFound"},
			"while the provision is in progress":     {"young", binding(planSmall), 422, "ConcurrencyError"},
			"while an update is in progress":         {"changing", binding(planSmall), 422, "ConcurrencyError"},
			"while the instance is being deleted":    {"dying", binding(planSmall), 422, "ConcurrencyError"},
			"for a plan that is not bindable":        {"fixed", binding(planFixed), 400, "BadRequest"},
			"for another service's plan":             {"i", binding(planOther), 400, "BadRequest"},
			"for an unknown plan":                    {"i", binding("nothing"), 400, "BadRequest"},
			"for another service":                    {"i", binding(planSmall, "service_id", otherService), 400, "BadRequest"},
			"for parameters the plan does not take":  {"i", binding(planSmall, "parameters", object{"a": 1}), 400, "BadRequest"},
			"without an application where needed":    {"app", binding(planApp), 422, "RequiresApp"},
			"for parameters that break the schema":   {"app", binding(planApp, "app_guid", "a", "parameters", object{"role": "x"}), 400, "BadRequest"},
			"for a predecessor that is not there":    {"i", binding(planSmall, "predecessor_binding_id", "nobody"), 400, "BadRequest"},
			"for a predecessor of a plan without it": {"app", binding(planApp, "app_guid", "a", "predecessor_binding_id", "x"), 400, "BadRequest"},
		} {
			t.Run(name, func(t *testing.T) {
				f.in(t).refused(row.status, row.code, "PUT", bindingPath(row.id, "refused"), row.body)
			})
		}
		if f.listing() != before {
			t.Error("something was changed")
		}
		f.want(http.StatusCreated, "PUT", bindingPath("app", "b"), binding(planApp, "bind_resource", object{"app_guid": "a"}, "parameters", object{"role": "admin"}))
	})

	t.Run("one that fails says why and leaves nothing behind", func(t *testing.T) {
		f := f.in(t)
		f.fake.does("unlucky", fail)
		a := f.refused(http.StatusInternalServerError, "OperationFailed", "PUT", bindingPath("i", "unlucky"), binding(planSmall))
		if !strings.HasPrefix(a.body["description"].(string), "The binding could not be created: cluster eu-1 does not answer.") {
			t.Errorf("description %q", a.body["description"])
		}
		f.fake.does("unlucky", succeed)
		f.eventually("nothing to be left", func() (answer, bool) { return answer{}, f.bindingOf("i", "unlucky") == nil })
	})

	t.Run("identical ones at once make one binding", func(t *testing.T) {
		f := f.in(t)
		answers := make(chan answer, 8)
		for range cap(answers) {
			go func() { answers <- f.do("PUT", bindingPath("i", "crowd"), binding(planSmall)) }()
		}
		created, tokens := 0, map[any]bool{}
		for range cap(answers) {
			a := <-answers
			if a.status == http.StatusCreated {
				created++
			} else if a.status != http.StatusOK {
				t.Errorf("got %s", a)
			}
			credentials, _ := a.body["credentials"].(object)
			tokens[credentials["token"]] = true
		}
		if created != 1 || len(tokens) != 1 {
			t.Errorf("%d created, %d credentials", created, len(tokens))
		}
	})

	t.Run("a platform that has missed the end of an update is served by what the instance is", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("missed", planSmall)
		f.finished("missed", f.want(http.StatusAccepted, "PATCH", instancePath("missed"), patch("plan_id", planLarge)).operation())
		f.want(http.StatusCreated, "PUT", bindingPath("missed", "b"), binding(planSmall))
		if got := f.bindingOf("missed", "b").Spec.PlanID; got != planLarge {
			t.Errorf("stored plan %s", got)
		}
		f.want(http.StatusOK, "PUT", bindingPath("missed", "b"), binding(planSmall))
		f.want(http.StatusOK, "DELETE", bindingPath("missed", "b")+"?"+deletion(planSmall), nil)
		f.want(http.StatusAccepted, "DELETE", instancePath("missed")+"&"+deletion(planSmall), nil)
		if !strings.Contains(f.log.String(), "plan_id was another plan than the stored one") {
			t.Error("the log does not say so")
		}
	})

	t.Run("one that knows only a plan that is gone can delete", func(t *testing.T) {
		f := f.in(t)
		defer f.sell(offerings()...)
		f.provisioned("former", planSmall)
		f.finished("former", f.want(http.StatusAccepted, "PATCH", instancePath("former"), patch("plan_id", planLarge)).operation())
		f.want(http.StatusCreated, "PUT", bindingPath("former", "b"), binding(planSmall))
		without := offerings()
		without[0].Status.Accepted.Plans = without[0].Status.Accepted.Plans[1:]
		f.sell(without...)
		f.want(http.StatusOK, "DELETE", bindingPath("former", "b")+"?"+deletion(planSmall), nil)
		f.want(http.StatusAccepted, "DELETE", instancePath("former")+"&"+deletion(planSmall), nil)
	})

	t.Run("after a change of plan the same bind, with the new plan, is the same", func(t *testing.T) {
		f := f.in(t)
		f.provisioned("moves", planSmall)
		f.want(http.StatusCreated, "PUT", bindingPath("moves", "b"), binding(planSmall))
		a := f.want(http.StatusAccepted, "PATCH", instancePath("moves"), patch("plan_id", planLarge))
		f.finished("moves", a.operation())
		f.want(http.StatusOK, "PUT", bindingPath("moves", "b"), binding(planLarge))
		f.want(http.StatusOK, "DELETE", bindingPath("moves", "b")+"?"+deletion(planLarge), nil)
	})
}

func TestBindAsynchronously(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.BindWait = 0; o.BindTimeout = 300 * time.Millisecond })
	f.provisioned("i", planSmall)
	f.fake.does("b", hold)
	path := bindingPath("i", "b")

	a := f.want(http.StatusAccepted, "PUT", path+"?accepts_incomplete=true", binding(planSmall))
	if len(a.body) != 1 || a.operation() != "bind-1" {
		t.Errorf("202 %s, want only the operation bind-1", a)
	}
	if again := f.want(http.StatusAccepted, "PUT", path+"?accepts_incomplete=true", binding(planSmall)); again.operation() != a.operation() {
		t.Errorf("operation %q the second time", again.operation())
	}
	f.refused(http.StatusNotFound, "NotFound", "GET", path, nil)
	if last := f.want(http.StatusOK, "GET", path+"/last_operation?operation=bind-1", nil); last.body["state"] != "in progress" || last.header.Get("Retry-After") != "1" {
		t.Errorf("last operation %s", last)
	}
	f.fake.does("b", succeed)
	f.eventually("the bind to succeed", func() (answer, bool) {
		last := f.do("GET", path+"/last_operation?operation=bind-1", nil)
		return last, last.body["state"] == "succeeded"
	})
	f.want(http.StatusOK, "PUT", path+"?accepts_incomplete=true", binding(planSmall))

	f.fake.does("b", hold)
	deleted := f.want(http.StatusAccepted, "DELETE", path+"?accepts_incomplete=true&"+deletion(planSmall), nil)
	if !strings.HasPrefix(deleted.operation(), "unbind-2.") {
		t.Errorf("operation %q", deleted.operation())
	}
	f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", "PUT", path, binding(planSmall))
	f.refused(http.StatusNotFound, "NotFound", "GET", path, nil)
	if last := f.want(http.StatusOK, "GET", path+"/last_operation?operation=bind-1", nil); last.body["state"] != "failed" {
		t.Errorf("the halted bind: %s", last)
	}
	if last := f.want(http.StatusOK, "GET", path+"/last_operation?operation="+deleted.operation(), nil); last.body["state"] != "in progress" {
		t.Errorf("the unbind: %s", last)
	}
	late := f.refused(http.StatusInternalServerError, "OperationFailed", "DELETE", path+"?"+deletion(planSmall), nil)
	if description := late.body["description"].(string); !strings.Contains(description, "can safely be repeated") {
		t.Errorf("description %q", description)
	}
	f.fake.does("b", succeed)
	f.eventually("410", func() (answer, bool) {
		last := f.do("GET", path+"/last_operation?operation="+deleted.operation(), nil)
		return last, last.status == http.StatusGone
	})
	if gone := f.want(http.StatusGone, "DELETE", path+"?"+deletion(planSmall), nil); string(gone.raw) != "{}" {
		t.Errorf("410 with %s", gone.raw)
	}

	t.Run("a synchronous one that takes too long is taken back", func(t *testing.T) {
		f := f.in(t)
		f.fake.does("slow", hold)
		a := f.refused(http.StatusInternalServerError, "OperationFailed", "PUT", bindingPath("i", "slow"), binding(planSmall))
		if got := a.body["description"]; got != "The binding could not be created within 300ms. Nothing of it stays, and the same request can safely be repeated." {
			t.Errorf("description %q", got)
		}
		if b := f.bindingOf("i", "slow"); b != nil && b.DeletionTimestamp == nil {
			t.Error("the binding is still there")
		}
	})

	t.Run("one without credentials shows none", func(t *testing.T) {
		f := f.in(t)
		f.want(http.StatusCreated, "PUT", bindingPath("i", "bare"), binding(planSmall))
		bare := f.bindingOf("i", "bare")
		bare.Status.SealedCredentials = nil
		must(t, f.hub.Status().Update(t.Context(), bare))
		if a := f.want(http.StatusOK, "GET", bindingPath("i", "bare"), nil); a.body["credentials"] != nil || a.body["endpoints"] == nil {
			t.Errorf("it shows %s", a)
		}
		bare.Status.SealedCredentials = []byte("sealed by another broker")
		must(t, f.hub.Status().Update(t.Context(), bare))
		f.refused(http.StatusInternalServerError, "InternalError", "GET", bindingPath("i", "bare"), nil)
	})

	t.Run("a failed one is tried again", func(t *testing.T) {
		f := f.in(t)
		f.fake.does("again", fail)
		path := bindingPath("i", "again") + "?accepts_incomplete=true"
		f.want(http.StatusAccepted, "PUT", path, binding(planSmall))
		last := f.eventually("the bind to fail", func() (answer, bool) {
			last := f.do("GET", bindingPath("i", "again")+"/last_operation", nil)
			return last, last.body["state"] == "failed"
		})
		if last.body["description"] != "cluster eu-1 does not answer" {
			t.Errorf("last operation %s", last)
		}
		f.fake.does("again", succeed)
		a := f.eventually("the failed one to go", func() (answer, bool) {
			a := f.do("PUT", path, binding(planSmall))
			return a, a.status != http.StatusUnprocessableEntity
		})
		if a.status != http.StatusAccepted && a.status != http.StatusCreated {
			t.Errorf("got %s", a)
		}
	})

	t.Run("the hung-up client of a synchronous one finds it when it asks again", func(t *testing.T) {
		f := f.in(t)
		f.fake.does("lost", hold)
		ctx, hangUp := context.WithCancel(context.Background())
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			f.doWith(ctx, "PUT", bindingPath("i", "lost"), binding(planSmall))
		}()
		f.eventually("the binding to be stored", func() (answer, bool) { return answer{}, f.bindingOf("i", "lost") != nil })
		hangUp()
		<-answered
		if b := f.bindingOf("i", "lost"); b == nil || b.DeletionTimestamp != nil {
			t.Fatal("the binding is lost")
		}
		f.fake.does("lost", succeed)
		f.eventually("credentials", func() (answer, bool) {
			a := f.do("PUT", bindingPath("i", "lost"), binding(planSmall))
			return a, a.status == http.StatusOK && a.body["credentials"] != nil
		})
	})
}

func TestRotate(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.BindWait = 0 })
	sold := offerings()
	sold[0].Status.Accepted.Plans[0].Schemas = sold[0].Status.Accepted.Plans[3].Schemas // that of the role
	f.sell(sold...)
	f.provisioned("i", planSmall)
	f.provisioned("other", planSmall)
	resource, parameters := object{"app_guid": "app", "x": 1.0}, object{"role": "admin"}
	old := binding(planSmall, "app_guid", "app", "bind_resource", resource, "parameters", parameters, "context", object{"platform": "cloudfoundry"})
	before := f.want(http.StatusCreated, "PUT", bindingPath("i", "old"), old)
	f.want(http.StatusCreated, "PUT", bindingPath("other", "foreign"), old)
	f.fake.does("unready", hold)
	f.want(http.StatusAccepted, "PUT", bindingPath("i", "unready")+"?accepts_incomplete=true", old)

	t.Run("a successor takes over what the request leaves out, and both are valid", func(t *testing.T) {
		f := f.in(t)
		only := object{"predecessor_binding_id": "old"}
		after := f.want(http.StatusCreated, "PUT", bindingPath("i", "new"), only)
		if reflect.DeepEqual(after.body["credentials"], before.body["credentials"]) {
			t.Error("the same credentials")
		}
		spec := f.bindingOf("i", "new").Spec
		if spec.AppGUID != "app" || spec.Context == nil || spec.PredecessorBindingID != "old" || spec.PlanID != planSmall {
			t.Errorf("stored %+v", spec)
		}
		if !sameObject(rawOf(spec.BindResource), []byte(encoded(resource))) || !sameObject(rawOf(spec.Parameters), []byte(encoded(parameters))) {
			t.Errorf("stored resource %s, parameters %s", rawOf(spec.BindResource), rawOf(spec.Parameters))
		}
		f.want(http.StatusOK, "PUT", bindingPath("i", "old"), old)
		f.want(http.StatusOK, "PUT", bindingPath("i", "new"), only)
		f.want(http.StatusOK, "PUT", bindingPath("i", "new"), with(old, "predecessor_binding_id", "old"))
		f.refused(http.StatusConflict, "Conflict", "PUT", bindingPath("i", "new"), old)
		f.refused(http.StatusConflict, "Conflict", "PUT", bindingPath("i", "new"), with(only, "predecessor_binding_id", "unready"))
		f.want(http.StatusCreated, "PUT", bindingPath("i", "newer"), with(old, "predecessor_binding_id", "new"))
		own := with(only, "app_guid", "another", "bind_resource", object{"x": 2}, "parameters", object{}, "context", object{"platform": "kubernetes"})
		f.want(http.StatusCreated, "PUT", bindingPath("i", "own"), own)
		spec = f.bindingOf("i", "own").Spec
		for field, stored := range map[string]json.RawMessage{"bind_resource": rawOf(spec.BindResource), "parameters": rawOf(spec.Parameters), "context": rawOf(spec.Context)} {
			if asked := encoded(own[field].(object)); !sameObject(stored, []byte(asked)) || spec.AppGUID != "another" {
				t.Errorf("%s of %s is stored as %s, want %s", field, spec.AppGUID, stored, asked)
			}
		}
	})

	t.Run("the predecessor must be in force, of the same instance and unexpired", func(t *testing.T) {
		f := f.in(t)
		f.want(http.StatusCreated, "PUT", bindingPath("i", "expired"), old)
		expired := f.bindingOf("i", "expired")
		past := metav1.NewTime(time.Now().Add(-time.Minute))
		expired.Status.ExpiresAt, expired.Status.RenewBefore = &past, &past
		if err := f.hub.Status().Update(t.Context(), expired); err != nil {
			t.Fatal(err)
		}
		for _, predecessor := range []any{"foreign", "nobody", "unready", "expired", "refused", "", 7} {
			f.refused(http.StatusBadRequest, "BadRequest", "PUT", bindingPath("i", "refused"), with(old, "predecessor_binding_id", predecessor))
		}
		f.refused(http.StatusBadRequest, "BadRequest", "PUT", bindingPath("i", "refused"), with(old, "predecessor_binding_id", "old", "service_id", otherService))
		if f.bindingOf("i", "refused") != nil {
			t.Error("a binding was made")
		}
	})
}
