package controller_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/controller"
	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/draft"
)

// The broker measures a cluster, signs the result, uses it as a claim, publishes its key and
// the probes that the result rests on, and continues after a key rotation.
func TestTheBrokerCertifiesWhatItMeasured(t *testing.T) {
	w := newWorld(t)
	provider := newParty(t, "provider")
	w.provider("eins", provider)
	d := draftOf(provider, "DE")
	w.cluster("fra", "eins", d.Offering("c"))
	if a, status := w.present(provider, "/selfdescriptions", w.sign(provider, d)...); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, a.Description)
	}
	w.admitted("fra", v1alpha1.ReasonReady)

	last := time.Now().UTC().Truncate(time.Minute).Add(-time.Minute)
	for second := range 60 {
		var err error
		if second%6 == 0 {
			err = errors.New("no answer")
		}
		w.probes.Probed("fra", last.Add(time.Duration(second)*time.Second), time.Duration(second)*time.Millisecond, err)
		if second < 30 { // half of a window says nothing
			w.probes.Probed("other", last.Add(time.Duration(second)*time.Second), time.Millisecond, nil)
		}
	}
	var claims []v1alpha1.Claim
	w.eventually("the measurement is a claim", func() string {
		_, claims = w.admitted("fra", v1alpha1.ReasonReady)
		if assurance(claims, v1alpha1.ClaimUptime, "0.8333") != v1alpha1.AssuranceMeasured {
			return "uptime is not claimed"
		}
		return ""
	})
	// 50 answers; the 48th is 57 ms. Those at multiples of six were lost.
	if assurance(claims, v1alpha1.ClaimLatency, "57") != v1alpha1.AssuranceMeasured {
		t.Errorf("the 95th percentile is not 57 ms: %v", claims)
	}
	measured := w.measurement()
	c, err := selfdescription.Parse(measured.Spec.Credential)
	must(t, err)
	if c.Claims["evidenceDigest"] != selfdescription.DigestOf(w.fetch("/selfdescriptions/"+c.Digest.String()+"/evidence")).SRI() {
		t.Error("the evidence is not what the measurement names")
	}

	must(t, w.Delete(t.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "fra"}}))
	d.Clusters[0].UID = strings.Replace(uid, "4", "5", 1)
	if a, status := w.present(provider, "/selfdescriptions", w.sign(provider, d)...); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, a.Description)
	}
	w.clusterOf("fra", "eins", d.Offering("c"), d.Clusters[0].UID)
	if _, claims = w.admitted("fra", v1alpha1.ReasonReady); assurance(claims, v1alpha1.ClaimUptime, "0.8333") != "" {
		t.Errorf("another cluster of the name has %v", claims)
	}

	before := w.keys()
	if len(before) != 1 || before[0].KeyID != c.KeyID {
		t.Fatalf("published keys are %v, signed was with %s", before, c.KeyID)
	}
	id := &v1alpha1.Identity{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: v1alpha1.IdentityName}, id))
	id.Annotations = map[string]string{controller.AnnotationRotate: "1"}
	must(t, w.Update(t.Context(), id))
	w.eventually("there is another key", func() string {
		if keys := w.keys(); len(keys) != 2 || keys[0].KeyID == before[0].KeyID || keys[1].KeyID != before[0].KeyID {
			return "the published keys are not a new one and the old one"
		}
		return ""
	})
	var document did.Document
	must(t, json.Unmarshal([]byte(w.fetch("/.well-known/did.json")), &document))
	if document.ID != broker || len(document.AssertionMethod) != 2 {
		t.Errorf("DID document of %s with assertion methods %v", document.ID, document.AssertionMethod)
	}
}

// organisation that runs the broker.
func organisation() *draft.Draft {
	return &draft.Draft{
		DID: broker, Base: "https://broker.example/sd", ValidDays: 90,
		Provider: draft.Organisation{Name: "Exchange", LegalCountry: "AT", HeadquartersCountry: "AT",
			Registration: map[string]string{"vatID": "ATU12345678"}, GaiaXTerms: draft.GaiaXTerms},
	}
}

func TestTheOrganisationThatRunsTheBrokerDescribesItself(t *testing.T) {
	w := newWorldOf(t, organisation())
	w.eventually("its credentials are verified and published", func() string {
		var page struct {
			Items []struct{ Type, Provider, Href string }
		}
		must(t, json.Unmarshal([]byte(w.fetch("/selfdescriptions?status=verified&country=AUT&issuer="+broker)), &page))
		for _, item := range page.Items {
			if item.Type == selfdescription.TypeLegalPerson && item.Provider == "" {
				return ""
			}
		}
		return "there is no LegalPerson among them"
	})
}

// measurement returns the one that the broker stored.
func (w *world) measurement() *v1alpha1.SelfDescription {
	w.Helper()
	var list v1alpha1.SelfDescriptionList
	must(w.T, w.List(w.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelCluster}))
	if len(list.Items) != 1 {
		w.Fatalf("%d measurements", len(list.Items))
	}
	return &list.Items[0]
}

// keys returns the keys that the broker publishes.
func (w *world) keys() []jose.JSONWebKey {
	w.Helper()
	var set jose.JSONWebKeySet
	must(w.T, json.Unmarshal([]byte(w.fetch("/.well-known/jwks.json")), &set))
	return set.Keys
}

func (w *world) fetch(path string) string {
	w.Helper()
	response, err := http.Get(w.server.URL + path)
	must(w.T, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(w.T, err)
	if response.StatusCode != http.StatusOK {
		w.Fatalf("GET %s: status %d: %s", path, response.StatusCode, body)
	}
	return string(body)
}
