package claims

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestParametersThatAreRemoved: an update without parameters leaves them as they are (OSB 2.17, "Updating a Service
// Instance"), so they are sent as an empty object if the broker may have some, and not to a plan that never took any.
func TestParametersThatAreRemoved(t *testing.T) {
	large := func(claim *claimsv1.ServiceClaim) { claim.Spec.Plan, claim.Spec.Parameters = "large", nil }
	none := func(claim *claimsv1.ServiceClaim) { claim.Spec.Parameters = nil }
	for name, row := range map[string]struct {
		before string // parameters of the order; "" if there are none
		meddle func(*bed)
		change func(*claimsv1.ServiceClaim)
		want   string // of the update's parameters; "" if it has none
	}{
		"with another plan": {`{"size": 2}`, nil, large, "{}"},
		"alone":             {`{"size": 2}`, nil, none, "{}"},
		"there were none":   {"", nil, large, ""},
		"with another maintenance version": {`{"size": 2}`, func(b *bed) {
			b.shop.set(editCatalog(`"1.2.0"`, `"1.3.0"`))
			b.offers.forget()
		}, func(claim *claimsv1.ServiceClaim) {
			claim.Spec.Parameters, claim.Spec.MaintenanceVersion = nil, "1.3.0"
		}, "{}"},
		"after an update that failed": {"", func(b *bed) {
			changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Parameters = raw(`{"fails": true}`) })
			b.serviceIs("Failed", "")
		}, large, "{}"},
		"after they were removed": {`{"size": 2}`, func(b *bed) {
			changes(b, b.service(), none)
			b.serviceIs("Ready", "")
		}, large, ""},
		"of an order that does not say": {"", func(b *bed) {
			claim := b.service()
			claim.Status.Instance.NoParameters = false // as an earlier version wrote it
			if err := b.client.Status().Update(b.Context(), claim); err != nil {
				b.Fatal(err)
			}
		}, large, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, &suitetest.Broker{})
			spec := claimsv1.ServiceClaimSpec{Plan: "small"}
			if row.before != "" {
				spec.Parameters = raw(row.before)
			}
			b.claim(spec, nil)
			b.serviceIs("Ready", "")
			if row.meddle != nil {
				row.meddle(b)
			}
			var mu sync.Mutex
			var sent []string
			before := b.shop.front
			b.shop.set(func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method == http.MethodPatch {
					content, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(strings.NewReader(string(content)))
					var body struct{ Parameters json.RawMessage }
					_ = json.Unmarshal(content, &body)
					mu.Lock()
					sent = append(sent, string(body.Parameters))
					mu.Unlock()
					if strings.Contains(string(content), "1.3.0") { // which this broker does not know
						_, _ = w.Write([]byte("{}"))
						return true
					}
				}
				return before != nil && before(w, r, broker)
			})
			changes(b, b.service(), row.change)
			b.serviceIs("Ready", "")
			mu.Lock()
			if len(sent) != 1 || sent[0] != row.want {
				t.Errorf("the updates have the parameters %q, want %q", sent, row.want)
			}
			mu.Unlock()
			b.shop.set(nil)
			b.remove(b.service())
			b.gone()
		})
	}
}

// editCatalog returns a front that replaces texts in the broker's catalog.
func editCatalog(texts ...string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	return func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, "/catalog") {
			return false
		}
		r.Header.Del("If-None-Match")
		answer := httptest.NewRecorder()
		broker.ServeHTTP(answer, r)
		_, _ = w.Write([]byte(strings.NewReplacer(texts...).Replace(answer.Body.String())))
		return true
	}
}

// TestBoundByThePlanOfTheInstance: a broker may give the name of an instance's plan to another plan. The instance is bound
// by its own, once.
func TestBoundByThePlanOfTheInstance(t *testing.T) {
	for name, row := range map[string]struct {
		catalog []string
		service string // what becomes of the service claim
	}{
		"under another name":             {[]string{`"name":"small"`, `"name":"legacy"`, `"name":"large"`, `"name":"small"`}, "Refused"},
		"not offered":                    {[]string{`"id":"plan-small"`, `"id":"plan-new"`}, "Refused"},
		"of a service with another name": {[]string{`"name":"name-of-service"`, `"name":"renamed"`}, "Ready"},
	} {
		for kind, broker := range map[string]*suitetest.Broker{"at once": {}, "later": {AsyncBind: true}} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				b := newBed(t, broker)
				b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, nil)
				b.serviceIs("Ready", "")
				var mu sync.Mutex
				ordered := map[string]bool{}
				swap := editCatalog(row.catalog...)
				b.shop.set(func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
					if r.Method == http.MethodPatch { // the instance stays on its plan
						w.WriteHeader(http.StatusBadRequest)
						_, _ = w.Write([]byte(`{"description": "no"}`))
						return true
					}
					if r.Method == http.MethodPut {
						mu.Lock()
						ordered[r.URL.Path] = true
						mu.Unlock()
					}
					return swap(w, r, broker)
				})
				b.offers.forget()
				binding := &claimsv1.BindingClaim{ObjectMeta: b.named()}
				binding.Spec.ServiceClaim = "db"
				b.create(binding)
				b.bindingIs("Ready", "")
				mu.Lock()
				if len(ordered) != 1 {
					t.Errorf("bindings are ordered: %v", ordered)
				}
				mu.Unlock()
				b.serviceIs(row.service, "")
				if is := string(b.secret().Data["type"]); is != "name-of-service" {
					t.Errorf("the Secret is of type %s", is)
				}
				b.shop.set(nil)
				b.offers.forget()
				b.remove(b.binding())
				b.remove(b.service())
				b.gone()
			})
		}
	}
}
