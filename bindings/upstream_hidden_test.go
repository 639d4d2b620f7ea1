package bindings_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// TestHiddenParametersAreNeverRepeated: a broker that repeats a hidden parameter of the instance, or of the binding, when it
// binds or unbinds is quoted without it, in the status and in the log.
func TestHiddenParametersAreNeverRepeated(t *testing.T) {
	const secret = "hunter2-hunter2"
	for name, row := range map[string]struct {
		method, path string
		status       int
		body, says   string
	}{
		"refuses to bind":  {"PUT", "", 400, `{"description": "hunter2-hunter2 is too short"}`, "the provider does not bind the instance: *** is too short"},
		"fails later":      {"GET", "last_operation", 200, `{"state": "failed", "description": "no hunter2-hunter2"}`, "the provider does not bind the instance: no ***"},
		"is asked again":   {"PUT", "", 503, `{"description": "hunter2-hunter2 is away"}`, ""},
		"an odd answer":    {"PUT", "", 201, `{"metadata": {"expires_at": "hunter2-hunter2"}, "description": "hunter2-hunter2"}`, "the provider does not bind the instance"},
		"fails to unbind":  {"DELETE", "", 500, `{"description": "no hunter2-hunter2"}`, ""},
		"refuses unbinds":  {"DELETE", "", 400, `{"description": "no hunter2-hunter2"}`, ""},
		"unbinds too much": {"DELETE", "", 503, `{"description": "no hunter2-hunter2"}`, ""},
	} {
		hides := func(t *testing.T, u *upstream, b *v1alpha1.ServiceBinding) {
			asked := 0
			u.front = func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method == http.MethodPut {
					withoutParameters(r)
				}
				if r.Method != row.method || !strings.HasSuffix(r.URL.Path, row.path) || asked > 2 {
					return false
				}
				asked++
				u.serve(httptest.NewRecorder(), r, broker)
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte(row.body))
				return true
			}
			var logged strings.Builder
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged.WriteString(args + "\n") }, funcr.Options{}))
			for passes := 0; passes < 3000 && !ended(b); passes++ {
				if _, err := u.controller.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
					logged.WriteString(err.Error() + "\n")
				}
				if err := u.hub.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil {
					t.Fatal(err)
				}
				b.Status.SealedCredentials = nil
				logged.WriteString(b.Status.Operation.Description + "\n")
			}
			if row.says != "" && b.Status.Operation.Description != row.says {
				t.Errorf("it says %+v, want %s", b.Status.Operation, row.says)
			}
			if row.method == http.MethodDelete {
				if err := u.hub.Delete(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				for passes := 0; passes < 3000 && client.IgnoreNotFound(u.hub.Get(t.Context(), client.ObjectKeyFromObject(b), b)) == nil && asked < 2; passes++ {
					if _, err := u.controller.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}); err != nil {
						logged.WriteString(err.Error() + "\n")
					}
				}
			}
			if text := logged.String(); asked == 0 || strings.Contains(text, secret) {
				t.Errorf("asked %d times, it is logged: %s", asked, text)
			}
		}
		seal := func(t *testing.T, of workload.Parameters) *runtime.RawExtension {
			stored, err := of.Sealed([]string{"password"}, []byte(`{"password": "`+secret+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			return &runtime.RawExtension{Raw: stored}
		}
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, true)
			var instance v1alpha1.ServiceInstance
			if err := u.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "si-1"}, &instance); err != nil {
				t.Fatal(err)
			}
			instance.Status.Delivered.State.Parameters = seal(t, workload.ParametersOf(&instance, u.keys))
			if err := u.hub.Update(t.Context(), &instance); err != nil {
				t.Fatal(err)
			}
			hides(t, u, u.order("b", ""))
		})
		t.Run(name+", of a binding", func(t *testing.T) {
			u := newUpstream(t, true)
			b := u.order("b", "")
			b.Spec.Parameters = seal(t, workload.BindingParametersOf(b, u.keys))
			if err := u.hub.Update(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			hides(t, u, b)
		})
	}
}

// withoutParameters removes the parameters of a request, which the broker of the tests does not take.
func withoutParameters(r *http.Request) {
	var sent map[string]any
	_ = json.NewDecoder(r.Body).Decode(&sent)
	delete(sent, "parameters")
	body, _ := json.Marshal(sent)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}
