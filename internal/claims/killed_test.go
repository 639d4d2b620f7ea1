package claims

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestKilledAtEveryWrite: a controller dies after each of its writes to the API server and to the broker, without hearing
// the answer. What it goes on with afterwards is the same as without that: one instance and one binding, a Secret that
// never has revoked credentials, and nothing at the end.
func TestKilledAtEveryWrite(t *testing.T) {
	for name, asynchronous := range map[string]bool{"binds at once": false, "binds later": true} {
		writes := diesAt(t, 1<<20, &suitetest.Broker{AsyncBind: asynchronous}) // without a death
		// Two finalizers and their end, the Secret three times, two requests for the instance and one to delete it, four for
		// bindings, and what is written before and after them.
		if writes < 24 {
			t.Errorf("%s: only %d writes", name, writes)
		}
		for at := 1; at <= writes; at++ {
			t.Run(fmt.Sprintf("%s, write %d", name, at), func(t *testing.T) {
				t.Parallel()
				if n := diesAt(t, at, &suitetest.Broker{AsyncBind: asynchronous}); n < at && at < writes-4 { // polls that are written vary
					t.Errorf("there were only %d writes", n)
				}
			})
		}
	}
}

// diesAt lets a controller die after a write, if there are so many, and returns how many there were until then.
func diesAt(t *testing.T, at int, broker http.Handler) int {
	t.Helper()
	b := newBed(t, broker)
	b.overlap = 0
	dies := &death{at: at}
	b.dies = dies
	b.start()
	b.shop.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		var secret corev1.Secret
		err := b.client.Get(context.Background(), client.ObjectKey{Namespace: b.namespace, Name: "db"}, &secret)
		if r.Method == http.MethodDelete && err == nil && secret.Annotations[claimsv1.AnnotationBinding] == id {
			t.Errorf("death %d: the credentials in the Secret are revoked", at)
		}
		if instances, bindings := b.shop.counts(); instances > 1 || bindings > 2 {
			t.Errorf("death %d: there are %d instances and %d bindings", at, instances, bindings)
		}
		return false
	})
	b.claim(claimsv1.ServiceClaimSpec{Plan: "small", Parameters: raw(`{"size": 3}`)}, &claimsv1.BindingClaimSpec{})
	b.bindingIs("Ready", "")
	changes(b, b.service(), func(claim *claimsv1.ServiceClaim) { claim.Spec.Plan = "large" })
	b.serviceIs("Ready", "")
	changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Renewal = "again" })
	b.bindingIs("Ready", "")
	if instances, bindings := b.shop.counts(); instances != 1 || b.service().Status.Instance.Plan != "large" || bindings > 2 {
		t.Errorf("death %d: there are %d instances, %d bindings, and %+v", at, instances, bindings, b.service().Status.Instance)
	}
	b.remove(b.binding())
	b.remove(b.service())
	b.gone()
	dies.mu.Lock()
	defer dies.mu.Unlock()
	return dies.writes
}

// TestChangedWhileDead: a controller dies after each of its writes until a claim is bound, and both claims are changed
// before it starts again. There is one instance then, as it is claimed now, and one binding.
func TestChangedWhileDead(t *testing.T) {
	for at := 1; at <= 12; at++ {
		t.Run(fmt.Sprintf("write %d", at), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, &suitetest.Broker{AsyncBind: at%2 == 0})
			b.overlap, b.dies = 0, &death{at: at}
			died := false
			b.whileDead = func() {
				died = true
				changes(b, b.service(), func(claim *claimsv1.ServiceClaim) {
					claim.Spec.Plan, claim.Spec.Parameters = "large", raw(`{"size": 9}`)
				})
				changes(b, b.binding(), func(claim *claimsv1.BindingClaim) { claim.Spec.Parameters = raw(`{"size": 9}`) })
			}
			b.start()
			b.claim(claimsv1.ServiceClaimSpec{Plan: "small", Parameters: raw(`{"size": 3}`)}, &claimsv1.BindingClaimSpec{})
			b.until("it is dead or ready", func() error {
				if died {
					return nil
				}
				claim := b.binding()
				return is(claim.Status.Conditions, claim.Generation, "Ready", "")
			})
			if !died && at < 9 {
				t.Errorf("there were fewer than %d writes", at)
			}
			b.serviceIs("Ready", "")
			b.bindingIs("Ready", "")
			b.until("the former bindings are gone", func() error {
				if instances, bindings := b.shop.counts(); instances != 1 || bindings != 1 {
					return fmt.Errorf("there are %d instances and %d bindings", instances, bindings)
				}
				return nil
			})
			has, err := open(t, configOf(b.shop.url)).FetchInstance(t.Context(), string(b.service().UID), "", "")
			if err != nil || died && (has.PlanID != "plan-large" || string(has.Parameters) != `{"size":9}`) {
				t.Errorf("the broker has %+v, %v", has, err)
			}
			b.remove(b.binding())
			b.remove(b.service())
			b.gone()
		})
	}
}

// death kills a process after one of its writes.
type death struct {
	at int // which write

	mu     sync.Mutex
	writes int
}

var errDead = errors.New("the process is dead")

func (d *death) isDead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes >= d.at
}

func (d *death) wrap(next http.RoundTripper) http.RoundTripper { return mortal{d, next} }

type mortal struct {
	*death
	next http.RoundTripper
}

// RoundTrip carries a request out. Nobody hears the answer to the last write.
func (m mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.isDead() {
		return nil, errDead
	}
	response, err := m.next.RoundTrip(r)
	if r.Method == http.MethodGet || err != nil {
		return response, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writes++; m.writes >= m.at {
		_ = response.Body.Close()
		return nil, errDead
	}
	return response, nil
}
