package bindings_test

import (
	"net/http"
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
