package claims

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestUnbindsThatFail: an unbind that fails is repeated, later each time, until the broker has nothing any more.
func TestUnbindsThatFail(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
	b.bindingIs("Ready", "")
	asked := atomic.Int32{}
	b.shop.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		fails := r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "service_bindings")
		if fails {
			asked.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("{}"))
		}
		return fails
	})
	changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Parameters = raw(`{"size": 1}`) })
	b.bindingIs("Ready", "")
	pause := b.overlap
	for attempts := int32(1); attempts <= 3; attempts++ {
		b.clock.SetTime(b.clock.Now().Add(pause + time.Second)) // the status has whole seconds
		b.until("it has failed again", func() error {
			if former := b.binding().Status.Revoking; len(former) != 1 || former[0].Attempts != attempts {
				return fmt.Errorf("the former bindings are %+v", former)
			}
			return nil
		})
		pause = firstRetry << (attempts - 1)
		result, err := b.ReconcileBinding(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: b.namespace, Name: "db"}})
		if next := result.RequeueAfter; err != nil || next > pause || next <= pause-time.Second || asked.Load() != attempts {
			t.Errorf("attempt %d: the next is in %v, want %v, and the broker was asked %d times: %v", attempts, next, pause, asked.Load(), err)
		}
	}
	b.shop.set(nil)
	b.remove(b.binding())
	b.remove(b.service())
	b.gone()
}
