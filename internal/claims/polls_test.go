package claims

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestBrokersThatAreAwayWhileTheyBind: a broker that cannot be asked how far a binding is, is named, and is asked again when it
// wants that, or with backoff.
func TestBrokersThatAreAwayWhileTheyBind(t *testing.T) {
	for name, row := range map[string]struct {
		status int // 0 for no answer
		reason string
	}{
		"busy": {http.StatusServiceUnavailable, claimsv1.ReasonBrokerUnavailable}, "another user": {http.StatusUnauthorized, claimsv1.ReasonUnauthorized},
		"silent": {0, claimsv1.ReasonBrokerUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, &suitetest.Broker{AsyncBind: true})
			away := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
				if !strings.Contains(r.URL.Path, "service_bindings") || !strings.HasSuffix(r.URL.Path, "last_operation") {
					return false
				}
				if row.status == 0 {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Retry-After", "250")
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte("{}"))
				return true
			}
			asksAgain := func() {
				t.Helper()
				result, err := b.ReconcileBinding(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b.binding())})
				if wants := row.status != 0; wants && result.RequeueAfter != 250*time.Second || !wants && err == nil {
					t.Errorf("it is asked again in %v, %v", result.RequeueAfter, err)
				}
			}
			b.shop.set(away)
			b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
			b.bindingIs(row.reason, "")
			asksAgain()
			b.shop.set(nil)
			b.bindingIs(claimsv1.ReasonReady, "")
			b.shop.set(away)
			changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Renewal = "now" })
			b.bindingIs(claimsv1.ReasonRenewalFailed, "the credentials in the Secret still work")
			asksAgain()
			b.shop.set(nil)
			b.bindingIs(claimsv1.ReasonReady, "")
			b.remove(b.binding())
			b.remove(b.service())
			b.gone()
		})
	}
}

// TestRenewedAfterAWithdrawal: a broker that binds only asynchronously is asked to also after it offers the plan, or the
// service, no more.
func TestRenewedAfterAWithdrawal(t *testing.T) {
	for name, texts := range map[string][]string{
		"of the plan":    {`"id":"plan-small"`, `"id":"plan-new"`},
		"of the service": {`"id":"` + suitetest.ServiceID + `"`, `"id":"new"`, `"name":"name-of-service"`, `"name":"new"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, &suitetest.Broker{AsyncBind: true})
			b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
			b.bindingIs(claimsv1.ReasonReady, "")
			claim := b.service()
			claim.Status.Instance.BindingsRetrievable = false // as an earlier version wrote it
			if err := b.client.Status().Update(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			b.until("the claim knows how bindings are made", func() error {
				if !b.service().Status.Instance.BindingsRetrievable {
					return errors.New("not yet")
				}
				return nil
			})
			first, withdrawn := b.binding().Status.Current.ID, editCatalog(texts...)
			b.shop.set(func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method == http.MethodPut && r.URL.Query().Get("accepts_incomplete") != "true" {
					w.WriteHeader(http.StatusUnprocessableEntity)
					_, _ = w.Write([]byte(`{"error": "AsyncRequired"}`))
					return true
				}
				return withdrawn(w, r, broker)
			})
			b.offers.forget()
			changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Renewal = "now" })
			b.bindingIs(claimsv1.ReasonReady, "")
			if b.binding().Status.Current.ID == first {
				t.Error("it is not renewed")
			}
			b.shop.set(nil)
			b.offers.forget()
			b.remove(b.binding())
			b.remove(b.service())
			b.gone()
		})
	}
}
