package bindings_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestOrphansAreDeletedBeforeABindFails: a bind has not failed as long as the broker may have a binding of it.
func TestOrphansAreDeletedBeforeABindFails(t *testing.T) {
	u := newUpstream(t, false)
	deletes := 0
	u.front = func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
		switch r.Method {
		case http.MethodPut:
			u.serve(httptest.NewRecorder(), r, broker)
			w.WriteHeader(http.StatusBadRequest)
		case http.MethodDelete:
			if deletes++; deletes > 2 {
				return false
			}
			w.WriteHeader(http.StatusInternalServerError)
		default:
			return false
		}
		_, _ = w.Write([]byte("{}"))
		return true
	}
	b := u.order("b", "")
	u.pass(b, ended)
	if b.Status.Operation.State != v1alpha1.StateFailed || deletes != 3 || u.left() > 0 {
		t.Errorf("it is %+v after %d attempts to delete it, %d left", b.Status.Operation, deletes, u.left())
	}
}

// TestUnbindsThatTakeLong: a broker that unbinds later is asked once, and then polled when it wants that, also after a bind
// that failed, and by another process. It is asked again if it could not unbind.
func TestUnbindsThatTakeLong(t *testing.T) {
	for name, fails := range map[string]bool{"an unbind": false, "a bind that failed": true} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, false)
			b := u.order("b", "")
			if !fails {
				u.pass(b, ended)
				if err := u.hub.Delete(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			var asked []string
			u.front = func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method == http.MethodPut {
					u.serve(httptest.NewRecorder(), r, broker)
					w.WriteHeader(http.StatusInternalServerError)
					return true
				}
				if asked = append(asked, r.Method+" "+r.URL.Query().Get("operation")); len(asked) > 3 {
					return false
				}
				w.Header().Set("Retry-After", fmt.Sprint(29+len(asked)))
				if len(asked) == 1 {
					w.WriteHeader(http.StatusAccepted)
				}
				state := map[bool]string{true: "failed", false: "in progress"}[len(asked) == 3]
				_, _ = fmt.Fprintf(w, `{"operation": "first", "state": %q, "description": "locked"}`, state)
				return true
			}
			step := func(requests int) {
				t.Helper()
				u.pass(b, func(*v1alpha1.ServiceBinding) bool { return len(asked) >= requests })
			}
			for request := 1; request <= 2; request++ {
				step(request)
				if want := time.Duration(29+request) * time.Second; u.err != nil || u.result.RequeueAfter != want || b.Status.Upstream.Unbind == nil {
					t.Errorf("after request %d it is asked again in %v, want %v, by %+v: %v", request, u.result.RequeueAfter, want, b.Status.Upstream, u.err)
				}
				u.restart()
			}
			step(3)
			if u.err == nil || !strings.Contains(u.err.Error(), "unbind failed: locked") || b.Status.Upstream.Unbind != nil {
				t.Errorf("after it has failed: %v, %+v", u.err, b.Status.Upstream)
			}
			u.pass(b, func(b *v1alpha1.ServiceBinding) bool { return b.Name == "" || ended(b) })
			if want := []string{"DELETE ", "GET first", "GET first", "DELETE "}; !slices.Equal(asked, want) || u.left() > 0 {
				t.Errorf("the broker is asked %q, want %q; left are %v", asked, want, u.there)
			}
		})
	}
}

// TestCredentialsThatAreFetched: a broker that has bound already need not say the credentials again, if they can be fetched.
func TestCredentialsThatAreFetched(t *testing.T) {
	u := newUpstream(t, false)
	u.front = func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
		if r.Method != http.MethodPut {
			return false
		}
		u.serve(httptest.NewRecorder(), r, broker)
		_, _ = w.Write([]byte("{}"))
		return true
	}
	b := u.order("b", "")
	u.pass(b, ended)
	object, err := u.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil || len(object.Reveal()) < len(`{"a":1}`) {
		t.Errorf("revealed is %s, %v", object.Reveal(), err)
	}
}

// TestUnboundByThePlanOfNow: a broker is asked to unbind by the plan that its instance has now (OSB 2.17, "Unbinding").
func TestUnboundByThePlanOfNow(t *testing.T) {
	u := newUpstream(t, false)
	b := u.order("b", "")
	u.pass(b, ended)
	var instance v1alpha1.ServiceInstance
	if err := u.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "si-1"}, &instance); err != nil {
		t.Fatal(err)
	}
	for _, d := range instance.Status.Decisions() {
		d.Placements[0].Upstream.PlanID = "plan-large"
	}
	if err := u.hub.Update(t.Context(), &instance); err != nil {
		t.Fatal(err)
	}
	query := ""
	u.front = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method == http.MethodDelete {
			query = r.URL.RawQuery
			r.URL.RawQuery = strings.Replace(query, "plan-large", "plan-small", 1) // which this broker has
		}
		return false
	}
	u.unbind(b)
	if !strings.Contains(query, "plan_id=plan-large") {
		t.Errorf("it is asked with %s", query)
	}
}

// TestUnboundAfterItsInstance: a binding is deleted at the broker also when its instance is gone from the hub.
func TestUnboundAfterItsInstance(t *testing.T) {
	u := newUpstream(t, false)
	b := u.order("b", "")
	u.pass(b, ended)
	if err := u.hub.Delete(t.Context(), &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-1"}}); err != nil {
		t.Fatal(err)
	}
	u.unbind(b)
}

// TestTheHubMayFailOnce: each request to the hub, and each write of another status, fails once while a broker binds and
// unbinds, or refuses. The pass says so, and the end is as without.
func TestTheHubMayFailOnce(t *testing.T) {
	for name, row := range map[string]struct {
		async, refuses bool
		state          v1alpha1.OperationState
	}{
		"at once": {state: v1alpha1.StateSucceeded}, "later": {async: true, state: v1alpha1.StateSucceeded}, "refused": {refuses: true, state: v1alpha1.StateFailed},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, row.async)
			u.front = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if row.refuses && r.Method == http.MethodPut {
					w.WriteHeader(http.StatusBadRequest)
				}
				return row.refuses && r.Method == http.MethodPut
			}
			f := &failures{spared: "*v1alpha1.ServiceInstance"} // which is read without the cache then
			once := func(request string, o any) error {
				request = fmt.Sprintf("%s %T", request, o)
				if b, is := o.(*v1alpha1.ServiceBinding); is && b.Status.Operation != nil && b.Status.Upstream != nil {
					request += fmt.Sprint(" ", b.Status.Operation.Type, b.Status.Operation.State, b.Status.Operation.Description, b.Status.Upstream.Failure)
				}
				if f.fails(request) {
					return errInjected
				}
				return nil
			}
			u.controller.Client = interceptor.NewClient(u.hub.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if err := once("get", o); err != nil {
						return err
					}
					return c.Get(ctx, key, o, options...)
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
					if err := once("patch", o); err != nil {
						return err
					}
					return c.Patch(ctx, o, patch, options...)
				},
				SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
					if err := once("update "+sub, o); err != nil {
						return err
					}
					return c.SubResource(sub).Update(ctx, o, options...)
				},
			})
			b := u.order("b", "")
			passes := func(what string, done func(*v1alpha1.ServiceBinding) bool) {
				t.Helper()
				f.forget()
				count := 0
				for range 3000 {
					_, err := u.controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
					failed, now := f.pass(), &v1alpha1.ServiceBinding{}
					if u.hub.Get(t.Context(), client.ObjectKeyFromObject(b), now) != nil {
						now = nil
					}
					if failed != "" {
						count++
					}
					if failed != "" && err == nil {
						t.Errorf("%s: %s failed, and nobody says so", what, failed)
					}
					if failed == "" && done(now) {
						if count == 0 {
							t.Errorf("%s: nothing failed", what)
						}
						return
					}
				}
				t.Fatalf("%s goes on for ever", what)
			}
			passes("bind", func(b *v1alpha1.ServiceBinding) bool { return ended(b) && b.Status.Operation.State == row.state })
			if err := u.hub.Delete(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			passes("unbind", func(b *v1alpha1.ServiceBinding) bool { return b == nil })
			if u.left() > 0 {
				t.Errorf("left at the broker: %v", u.there)
			}
		})
	}
}

// TestAcceptedAfterAWait: a broker that first asks to wait, and then binds later, is asked to bind until it accepts that, and
// polled afterwards.
func TestAcceptedAfterAWait(t *testing.T) {
	for name, refusal := range map[string]struct {
		status int
		body   string
	}{
		"something else is under way": {http.StatusUnprocessableEntity, `{"error": "ConcurrencyError"}`},
		"not now":                     {http.StatusServiceUnavailable, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, true)
			var asked []string
			u.front = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				asked = append(asked, r.Method)
				if len(asked) > 1 {
					return false
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(refusal.status)
				_, _ = w.Write([]byte(refusal.body))
				return true
			}
			b := u.order("b", "")
			u.pass(b, ended)
			if b.Status.Operation.State != v1alpha1.StateSucceeded || len(asked) < 4 || slices.Contains(asked[2:], http.MethodPut) {
				t.Errorf("it is %+v after %v", b.Status.Operation, asked)
			}
		})
	}
}

// TestPollsThatFail: a broker that fails once to answer how far a bind is has not refused it (OSB 2.17, "Polling Last
// Operation"). A bind that it does not know any more is asked for again.
func TestPollsThatFail(t *testing.T) {
	for name, row := range map[string]struct {
		path   string // its end
		status int
		puts   int
	}{
		"500 to a poll":  {"/last_operation", http.StatusInternalServerError, 1},
		"404 to a poll":  {"/last_operation", http.StatusNotFound, 2},
		"500 to a fetch": {osbclient.BindingID(hubID, "eu", v1alpha1.BindingName("p", "one", "b")), http.StatusInternalServerError, 1},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, true)
			failed, asked := false, map[string]int{}
			u.front = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if asked[r.Method]++; failed || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, row.path) {
					return false
				}
				failed = true
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte("{}"))
				return true
			}
			b := u.order("b", "")
			u.pass(b, ended)
			if b.Status.Operation.State != v1alpha1.StateSucceeded || !failed || asked[http.MethodPut] != row.puts || asked[http.MethodDelete] > 0 {
				t.Errorf("it is %+v after %v", b.Status.Operation, asked)
			}
		})
	}
}
