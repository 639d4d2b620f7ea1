package broker

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// failing makes the hub answer with an error whenever fails returns one, which is asked before each call, by its verb.
func failing(fails func(verb string) error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := fails("get"); err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if err := fails("list"); err != nil {
				return err
			}
			return c.List(ctx, list, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := fails("create"); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if err := fails("update"); err != nil {
				return err
			}
			return c.Update(ctx, o, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := fails("delete"); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			if err := fails("watch"); err != nil {
				return nil, err
			}
			return c.Watch(ctx, list, options...)
		},
	}
}

// Whichever call of the hub fails, the answer is 503, and another request is answered as if nothing had happened.
func TestTheHubIsAwayAtAnyCall(t *testing.T) {
	calls, away := 0, 0
	f := newFixture(t, intercepted(failing(func(string) error {
		if calls++; calls == away {
			return apierrors.NewServiceUnavailable("the hub is away")
		}
		return nil
	})))
	f.provisioned("i", planSmall)
	f.want(http.StatusCreated, "PUT", bindingPath("i", "b"), binding(planSmall))
	f.fake.does("failed", fail)
	f.finished("failed", f.want(http.StatusAccepted, "PUT", instancePath("failed"), order(planSmall)).operation())
	for _, id := range []string{"leaving", "changing", "naming", "joined"} {
		f.provisioned(id, planSmall)
	}
	f.placed("joined", v1alpha1.Placement{Cluster: "makers", Shape: &v1alpha1.ClusterShape{Class: "class", ClassNamespace: "default", Version: "v1.34.4", Member: &v1alpha1.ShapeMember{}}})
	for _, id := range []string{"leaving", "changing", "unlucky"} {
		f.fake.does(id, hold)
	}
	for n := range 8 {
		f.fake.does(fmt.Sprint("unlucky-", n), fail)
	}
	f.want(http.StatusCreated, "PUT", bindingPath("i", "left"), binding(planSmall))
	f.fake.does("left", hold)
	away = 0
	for _, row := range []struct {
		name, method, path string // with the number of the attempt for %d
		body               any
		want               int
		calls              int // of the hub, at least
	}{
		{"provision", "PUT", instancePath("new"), order(planSmall), http.StatusAccepted, 1},
		{"the same provision", "PUT", instancePath("i"), order(planSmall), http.StatusOK, 2},
		{"a failed provision again", "PUT", instancePath("failed"), order(planSmall), http.StatusAccepted, 3},
		{"fetch", "GET", "/v2/service_instances/i", nil, http.StatusOK, 1},
		{"last operation", "GET", "/v2/service_instances/i/last_operation", nil, http.StatusOK, 1},
		{"update", "PATCH", instancePath("changing"), patch("plan_id", planLarge), http.StatusAccepted, 2},
		{"update of the context", "PATCH", instancePath("naming"), patch("context", object{"instance_name": "a"}), http.StatusOK, 2},
		{"deprovision", "DELETE", instancePath("leaving") + "&" + deletion(planSmall), nil, http.StatusAccepted, 2},
		{"deprovision of a joined cluster", "DELETE", instancePath("joined") + "&" + deletion(planSmall), nil, http.StatusAccepted, 4},
		{"bind", "PUT", bindingPath("i", "new-%d"), binding(planSmall), http.StatusCreated, 3},
		{"the same bind", "PUT", bindingPath("i", "b"), binding(planSmall), http.StatusOK, 1},
		{"bind that fails", "PUT", bindingPath("i", "unlucky-%d"), binding(planSmall), http.StatusInternalServerError, 4},
		{"rotation", "PUT", bindingPath("i", "next-%d"), binding(planSmall, "predecessor_binding_id", "b"), http.StatusCreated, 4},
		{"fetch of a binding", "GET", bindingPath("i", "b"), nil, http.StatusOK, 1},
		{"last operation of a binding", "GET", bindingPath("i", "b") + "/last_operation", nil, http.StatusOK, 1},
		{"unbind, asynchronously", "DELETE", bindingPath("i", "left") + "?accepts_incomplete=true&" + deletion(planSmall), nil, http.StatusAccepted, 2},
		{"unbind", "DELETE", bindingPath("i", "b") + "?" + deletion(planSmall), nil, http.StatusOK, 2},
		{"usage", "GET", "/usage", nil, http.StatusOK, 1},
	} {
		most := 0
		for n := 1; ; n++ {
			calls, away = 0, n
			a := f.do(row.method, strings.ReplaceAll(row.path, "%d", fmt.Sprint(n)), row.body)
			if most = max(most, calls); calls < n { // none of its calls has failed
				if a.status != row.want && (row.want != http.StatusOK || a.status != http.StatusGone) {
					t.Errorf("%s: in the end %s, want %d", row.name, a, row.want)
				}
				break
			}
			if a.status == row.want && row.name == "fetch" {
				continue // the region of a cluster is left out
			}
			if a.status != http.StatusServiceUnavailable || a.body["error"] != "Unavailable" || a.header.Get("Retry-After") == "" {
				t.Errorf("%s, away at call %d: %s, want 503", row.name, n, a)
			}
		}
		if most < row.calls {
			t.Errorf("%s asks the hub %d times, want %d", row.name, most, row.calls)
		}
		away = 0
	}
}

// placed makes the status of an instance say that it is delivered so.
func (f *fixture) placed(id string, p v1alpha1.Placement) {
	f.t.Helper()
	p.Reserved = corev1.ResourceList{}
	i := f.instance("cf-eu", id)
	i.Status.Decision = &v1alpha1.Decision{Placements: []v1alpha1.Placement{p}}
	i.Status.Delivered = &v1alpha1.DeliveredState{State: i.Spec.Desired, Decision: *i.Status.Decision}
	if err := f.hub.Status().Update(f.t.Context(), i); err != nil {
		f.t.Fatal(err)
	}
}

// A write that another one overtakes is tried again, and given up after a few times.
func TestWritesThatAreOvertaken(t *testing.T) {
	conflicts := map[string]int{} // still to come, by verb
	f := newFixture(t, intercepted(failing(func(verb string) error {
		if conflicts[verb]--; conflicts[verb] < 0 {
			return nil
		}
		resource := schema.GroupResource{Resource: "serviceinstances"}
		if verb == "create" {
			return apierrors.NewAlreadyExists(resource, "x")
		}
		return apierrors.NewConflict(resource, "x", context.Canceled)
	})))
	f.provisioned("i", planSmall)
	f.fake.does("failed", fail)
	f.finished("failed", f.want(http.StatusAccepted, "PUT", instancePath("failed"), order(planSmall)).operation())
	for _, row := range []struct {
		name, verb, method, path string
		body                     object
		want                     int
	}{
		{"provision", "create", "PUT", instancePath("new"), order(planSmall), http.StatusAccepted},
		{"a failed provision", "update", "PUT", instancePath("failed"), order(planSmall), http.StatusAccepted},
		{"update", "update", "PATCH", instancePath("i"), patch("plan_id", planLarge), http.StatusAccepted},
		{"bind", "create", "PUT", bindingPath("bound", "b"), binding(planSmall), http.StatusCreated},
	} {
		if row.name == "bind" {
			f.provisioned("bound", planSmall)
		}
		conflicts[row.verb] = maxConflicts
		f.refused(http.StatusUnprocessableEntity, "ConcurrencyError", row.method, row.path, row.body)
		conflicts[row.verb] = maxConflicts - 1
		f.want(row.want, row.method, row.path, row.body)
	}
}

// While the hub is away the broker is not ready, which is looked up once a second.
func TestNotReadyWhileTheHubIsAway(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now())
	asked := 0
	f := newFixture(t, intercepted(failing(func(string) error {
		asked++
		return apierrors.NewServiceUnavailable("the hub is away")
	})), func(o *Options) { o.Clock = now })
	for _, looks := range []int{1, 1, 2} {
		if a := f.want(http.StatusServiceUnavailable, "GET", "/readyz", nil, header("Authorization", "")); a.body["description"] != "the hub does not answer" || asked != looks {
			t.Errorf("%s after %d looks, want %d", a, asked, looks)
		}
		if looks == asked && strings.Count(f.log.String(), "not ready: the hub does not answer") != looks {
			t.Errorf("the log does not say so:\n%s", f.log)
		}
		now.SetTime(now.Now().Add(readyFor / 2))
	}
}
