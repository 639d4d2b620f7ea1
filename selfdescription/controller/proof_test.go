package controller_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/server"
)

// TestAConsumerProvesWhoItIs: a consumer presents as a provider does, and has proven its country from then on, until it
// withdraws the credential. Nobody else reads what it has presented, and it gets no token.
func TestAConsumerProvesWhoItIs(t *testing.T) {
	w := newWorld(t)
	city, other := newParty(t, "city"), newParty(t, "other")
	consumer := &v1alpha1.Consumer{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "city"},
		Spec:       v1alpha1.ConsumerSpec{Identified: city.identified(t), Orders: []v1alpha1.ConsumerReference{{Platform: "cf", Organization: "city"}}},
	}
	must(t, w.Create(t.Context(), consumer))
	proven := func(reason string) (message string, claims []v1alpha1.Claim) {
		t.Helper()
		w.eventually("the consumer's proof: "+reason, func() string {
			must(t, w.Get(t.Context(), client.ObjectKeyFromObject(consumer), consumer))
			c := meta.FindStatusCondition(consumer.Status.Conditions, v1alpha1.ConditionProven)
			if c == nil || c.Reason != reason {
				return "not yet"
			}
			message, claims = c.Message, consumer.Status.Claims
			return ""
		})
		return message, claims
	}
	if message, claims := proven("NotProven"); claims != nil || !strings.Contains(message, "no LegalPerson of did:web:city.example") {
		t.Errorf("before, it has proven %v: %s", claims, message)
	}

	alone := func(p party) []string {
		d := draftOf(p, "DE")
		d.Clusters, d.Datacenters = nil, nil
		return w.sign(p, d)
	}
	credentials := alone(city)
	if a, status := w.present(other, "/selfdescriptions", alone(other)...); status != http.StatusForbidden && status != http.StatusUnprocessableEntity {
		t.Errorf("a stranger's are answered %d: %s", status, a.Description)
	}
	if a, status := w.present(city, "/selfdescriptions", credentials...); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, a.Description)
	}
	if _, claims := proven(v1alpha1.ReasonReady); len(claims) == 0 || claims[0].Name != v1alpha1.ClaimConsumerCountry || claims[0].Value != "DE" || claims[0].Assurance != v1alpha1.AssuranceSelf {
		t.Errorf("it has proven %v", claims)
	}

	t.Run("nobody else reads it", func(t *testing.T) {
		for _, compact := range credentials {
			digest := selfdescription.DigestOf(compact)
			for _, path := range []string{"", "/report", "/evidence"} {
				response, err := http.Get(w.server.URL + "/selfdescriptions/" + digest.String() + path)
				must(t, err)
				response.Body.Close()
				if response.StatusCode != http.StatusNotFound {
					t.Errorf("%q is answered %d", path, response.StatusCode)
				}
			}
		}
		if list := w.fetch("/selfdescriptions"); strings.Contains(list, city.did) {
			t.Errorf("the catalogue has it: %s", list)
		}
	})

	t.Run("it gets no token", func(t *testing.T) {
		token, err := city.signer.Presentation(nil, selfdescription.Expect{Audience: broker, Nonce: w.nonce(selfdescription.OperationLogin), Operation: selfdescription.OperationLogin}, time.Now())
		must(t, err)
		refused := (*server.Error)(nil)
		if name, err := server.Login(w.options)(t.Context(), token); name != "" || !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
			t.Errorf("got %q, %v", name, err)
		}
	})

	t.Run("it withdraws it", func(t *testing.T) {
		for _, compact := range credentials {
			path := "/selfdescriptions/" + selfdescription.DigestOf(compact).String() + "/revoke"
			if a, status := w.present(city, path, compact); status != http.StatusOK {
				t.Fatalf("status %d: %s", status, a.Description)
			}
		}
		if message, claims := proven("NotProven"); claims != nil {
			t.Errorf("it has still proven %v: %s", claims, message)
		}
	})
}
