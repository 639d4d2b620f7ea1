package claims

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestDefects: a broker that does what it is asked for and answers something else, or refuses, is quoted in the condition;
// nothing of it is left there, and the claim recovers.
func TestDefects(t *testing.T) {
	const polls = "last_operation"
	for name, row := range map[string]struct {
		method, in   string // requests that are answered: their method, and a part of their path
		status       int
		body         string
		reason, says string
		binds        bool // it is about the binding
		final        bool // until the claim changes
	}{
		"fails":                 {"PUT", "", 500, `{"description": "no disk"}`, "Failed", "provision: 500 Internal Server Error: no disk; it is tried again at ", false, false},
		"refuses":               {"PUT", "", 400, `{"description": "size: too big"}`, "Refused", "provision: 400 Bad Request: size: too big; it is tried again when the claim changes", false, true},
		"exists differently":    {"PUT", "", 409, `{}`, "Refused", "provision: 409 Conflict", false, true},
		"cannot process":        {"PUT", "", 422, `{"error": "RequiresApp"}`, "Refused", "422 Unprocessable Entity RequiresApp", false, true},
		"no JSON":               {"PUT", "", 201, `<html>`, "Failed", "201 Created, with a body that is not OSB", false, false},
		"an odd success":        {"PUT", "", 203, `{}`, "Failed", "203 Non-Authoritative Information", false, false},
		"a redirect":            {"PUT", "", 307, ``, "BrokerUnavailable", "307 Temporary Redirect", false, false},
		"busy":                  {"PUT", "", 503, `{}`, "BrokerUnavailable", "provision: 503 Service Unavailable", false, false},
		"another user":          {"PUT", "", 401, `{}`, "Unauthorized", "provision: 401 Unauthorized", false, false},
		"another operation":     {"PUT", "", 422, `{"error": "ConcurrencyError"}`, "BrokerUnavailable", "ConcurrencyError", false, false},
		"fails later":           {"GET", polls, 200, `{"state": "failed", "description": "no licence\u0007"}`, "Failed", "provision failed: no licence; it is", false, false},
		"gone while it is made": {"GET", polls, 410, `{}`, "Failed", "does not know the instance any more", false, false},
		"an unknown operation":  {"GET", polls, 404, `{}`, "InProgress", "provision is under way: poll the operation: 404 Not Found", false, false},
		"an odd state":          {"GET", polls, 200, `{"state": "done"}`, "InProgress", "is none of in progress", false, false},
		"does not bind":         {"PUT", "bindings", 400, `{"description": "no more"}`, "Refused", "bind: 400 Bad Request: no more", true, true},
		"fails to bind":         {"PUT", "bindings", 500, `{}`, "Failed", "bind: 500 Internal Server Error", true, false},
		"odd credentials":       {"PUT", "bindings", 201, `{"credentials": "secret"}`, "Failed", "credentials: want an object", true, false},
		"odd times":             {"PUT", "bindings", 201, `{"metadata": {"expires_at": "soon"}}`, "Failed", "metadata.expires_at", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, &suitetest.Broker{})
			b.shop.set(func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				if r.Method != row.method || !strings.Contains(r.URL.Path, row.in) || row.binds != strings.Contains(r.URL.Path, "service_bindings") {
					return false
				}
				if row.method == http.MethodPut && row.status/100 != 4 { // who refuses does nothing
					broker.ServeHTTP(httptest.NewRecorder(), r)
				}
				w.WriteHeader(row.status)
				_, _ = w.Write([]byte(row.body))
				return true
			})
			b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
			is := b.serviceIs
			if row.binds {
				is = b.bindingIs
			}
			is(row.reason, row.says)
			b.shop.set(nil)
			if row.final {
				changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Parameters = raw(`{"size": 2}`) })
				changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Parameters = raw(`{"size": 2}`) })
			}
			b.clock.SetTime(b.clock.Now().Add(firstRetry + time.Second))
			b.serviceIs("Ready", "")
			b.bindingIs("Ready", "")
			b.remove(b.binding())
			b.remove(b.service())
			b.gone()
		})
	}
}

// TestNothingToUndo: an answer of 200 that is not OSB leaves no orphan (OSB 2.17, "Orphan Mitigation"). The same is asked
// for again until the broker answers better, and nothing is deleted in between.
func TestNothingToUndo(t *testing.T) {
	for name, in := range map[string]string{"of an instance": "", "of a binding": "service_bindings"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, &suitetest.Broker{})
			asked := 0
			b.shop.set(func(w http.ResponseWriter, r *http.Request, broker http.Handler) bool {
				switch {
				case r.Method == http.MethodDelete:
					t.Errorf("%s is asked for", r.URL.Path)
				case r.Method == http.MethodPut && strings.Contains(r.URL.Path, in) && asked < 3:
					asked++
					broker.ServeHTTP(httptest.NewRecorder(), r)
					_, _ = w.Write([]byte("<html>"))
					return true
				}
				return false
			})
			b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
			is := b.serviceIs
			if in != "" {
				is = b.bindingIs
			}
			is("BrokerUnavailable", "200 OK, with a body that is not OSB")
			b.serviceIs("Ready", "")
			b.bindingIs("Ready", "")
			b.shop.set(nil)
			if instances, bindings := b.shop.counts(); asked != 3 || instances != 1 || bindings != 1 {
				t.Errorf("asked %d times, there are %d instances and %d bindings", asked, instances, bindings)
			}
			b.remove(b.binding())
			b.remove(b.service())
			b.gone()
		})
	}
}

// TestBeforeTheOrder: what is wrong with a claim is told precisely, and the broker is not asked.
func TestBeforeTheOrder(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "more"}, Data: map[string][]byte{
		"twice": []byte(`{"size": 1}`), "odd": []byte("hunter2"), "wrong": []byte(`{"size": "hunter2"}`),
	}})
	from := func(key string) []claimsv1.ParametersSource {
		return []claimsv1.ParametersSource{{SecretKeyRef: claimsv1.SecretKeyReference{Name: "more", Key: key}}}
	}
	b.claim(claimsv1.ServiceClaimSpec{Plan: "tiny"}, &claimsv1.BindingClaimSpec{})
	b.serviceIs("NotOffered", `service name-of-service: plan "tiny" is not offered; there is small, large`)
	b.bindingIs("ServiceNotReady", "service claim db has no instance yet")
	for says, change := range map[string]func(*claimsv1.ServiceClaimSpec){
		"parameters/colour: the plan takes no such parameter":                  func(s *claimsv1.ServiceClaimSpec) { s.Parameters = raw(`{"colour": "red"}`) },
		"parameters/size: got string, want integer":                            func(s *claimsv1.ServiceClaimSpec) { s.Parameters = raw(`{"size": "L"}`) },
		"parametersFrom[0]: there is no Secret more with the key none":         func(s *claimsv1.ServiceClaimSpec) { s.ParametersFrom = from("none") },
		"parametersFrom[0]: key twice of Secret more: want an object":          func(s *claimsv1.ServiceClaimSpec) { s.Parameters, s.ParametersFrom = raw(`{"size": 2}`), from("twice") },
		"spec.parametersFrom[0]: key odd of Secret more: want an object, as J": func(s *claimsv1.ServiceClaimSpec) { s.ParametersFrom = from("odd") },
	} {
		changes(b, b.service(), func(claim *claimsv1.ServiceClaim) {
			claim.Spec = claimsv1.ServiceClaimSpec{Broker: "default", Service: "name-of-service", Plan: "small"}
			change(&claim.Spec)
		})
		b.serviceIs("InvalidParameters", says)
	}
	if instances, _ := b.shop.counts(); instances > 0 {
		t.Error("the broker was asked")
	}
	if message := b.service().Status.Conditions[0].Message; strings.Contains(message, "hunter2") {
		t.Errorf("the message quotes a Secret: %s", message)
	}
	b.remove(b.binding())
	b.remove(b.service())
	b.gone()
}

// TestSecretParameters: a broker that repeats a parameter from a Secret is not quoted with it.
func TestSecretParameters(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "more"}, Data: map[string][]byte{"all": []byte(`{"fails": ["hunter2-hunter2"]}`)}})
	b.shop.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"description": "hunter2-hunter2 is too short"}`))
		}
		return r.Method == http.MethodPut
	})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small", ParametersFrom: []claimsv1.ParametersSource{{SecretKeyRef: claimsv1.SecretKeyReference{Name: "more", Key: "all"}}}}, nil)
	b.serviceIs("Refused", "400 Bad Request: … is too short")
	b.remove(b.service())
	b.gone()
}

// TestFailedUpdate: an update that fails leaves the instance and its credentials as they are, and is tried again; going
// back to what was before ends it.
func TestFailedUpdate(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, &claimsv1.BindingClaimSpec{})
	b.bindingIs("Ready", "")
	changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Parameters = raw(`{"fails": true}`) })
	b.serviceIs("Failed", "update failed: It was meant to fail.; it is tried again at ")
	b.clock.SetTime(b.clock.Now().Add(firstRetry + time.Second))
	b.until("it has been tried twice", func() error {
		if f := b.service().Status.Failure; f == nil || f.Attempts < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	b.bindingIs("Ready", "")
	changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Parameters = nil })
	b.serviceIs("Ready", "")
	changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Plan = "large" })
	b.serviceIs("Ready", "")
	changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.MaintenanceVersion = "2.0.0" })
	b.serviceIs("Refused", "MaintenanceInfoConflict")
	b.remove(b.binding())
	b.remove(b.service())
	b.gone()
}

// TestLost: an instance that its broker has lost is named, and not ordered again.
func TestLost(t *testing.T) {
	b := newBed(t, &suitetest.Broker{})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small"}, nil)
	b.serviceIs("Ready", "")
	b.shop.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if r.Method == http.MethodPut {
			t.Error("it is ordered again")
		}
		if r.Method == http.MethodGet && !strings.HasSuffix(r.URL.Path, "catalog") {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{}`))
			return true
		}
		return false
	})
	b.serviceIs("Lost", "the broker does not know the instance any more")
	b.shop.set(nil)
	b.remove(b.service())
	b.gone()
}
