package bindings_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestBindsThatTakeLong: a bind is waited for as long as Controller.Patience, or as the broker's plan allows to poll, and fails
// then unless it is there.
func TestBindsThatTakeLong(t *testing.T) {
	for name, row := range map[string]struct {
		async    bool
		patience time.Duration
		polling  int64
		away     bool
		state    v1alpha1.OperationState
		says     string
	}{
		"in hand":                         {true, time.Hour, 0, false, v1alpha1.StateInProgress, "waiting for the provider to bind the instance"},
		"in hand, within the plan's time": {true, -1, 3600, false, v1alpha1.StateInProgress, "waiting for the provider to bind the instance"},
		"in hand for long":                {true, -1, 0, false, v1alpha1.StateFailed, "the provider did not bind the instance in time"},
		"there, late":                     {false, -1, 0, false, v1alpha1.StateSucceeded, ""},
		"away":                            {false, time.Hour, 0, true, v1alpha1.StateInProgress, "waiting for cluster eu to issue credentials"},
		"away for long":                   {false, -1, 0, true, v1alpha1.StateFailed, "the provider did not bind the instance in time"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t, row.async)
			u.controller.Patience = row.patience
			var instance v1alpha1.ServiceInstance
			if err := u.hub.Get(t.Context(), client.ObjectKey{Namespace: "sluice", Name: "si-1"}, &instance); err != nil {
				t.Fatal(err)
			}
			instance.Status.Delivered.Decision.Placements[0].Upstream.PollingSeconds = row.polling
			if err := u.hub.Update(t.Context(), &instance); err != nil {
				t.Fatal(err)
			}
			if row.away {
				u.front = func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
					if r.Method == http.MethodPut {
						panic(http.ErrAbortHandler) // nobody hears an answer
					}
					return false
				}
			}
			b := u.order("b", "")
			u.pass(b, func(b *v1alpha1.ServiceBinding) bool {
				return b.Status.Operation != nil && b.Status.Operation.State == row.state
			})
			if is := b.Status.Operation; is.Description != row.says {
				t.Errorf("it is %+v, want %q", is, row.says)
			}
			if row.state == v1alpha1.StateInProgress && row.async && u.result.RequeueAfter < time.Second {
				t.Errorf("it is asked again in %v", u.result.RequeueAfter)
			}
		})
	}
}

// TestRenewalsThatTakeLong: credentials that a broker issues anew later are waited for without an error. What it has accepted is
// written, and the present ones stay.
func TestRenewalsThatTakeLong(t *testing.T) {
	u := newUpstream(t, false)
	b := u.order("b", "")
	u.pass(b, ended)
	before := b.DeepCopy()
	b.AskRenewal()
	if err := u.hub.Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	u.front = func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusAccepted)
			_, _ = w.Write([]byte(`{"operation": "anew"}`))
		}
		return r.Method == http.MethodPut
	}
	u.pass(b, func(*v1alpha1.ServiceBinding) bool { return true })
	if u.err != nil || u.result.RequeueAfter < time.Second {
		t.Errorf("it is looked at again in %v, after the error %v", u.result.RequeueAfter, u.err)
	}
	if is := b.Status.Upstream.Operation; is == nil || *is != "anew" {
		t.Errorf("the operation at the broker is %v", is)
	}
	if is := b.Status.Operation; is.State != v1alpha1.StateSucceeded || is.Description != before.Status.Operation.Description || !slices.Equal(b.Status.SealedCredentials, before.Status.SealedCredentials) {
		t.Errorf("the binding has become %+v", b.Status)
	}
}
