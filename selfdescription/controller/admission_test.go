package controller_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

func TestAProviderProvesWhatItsClusterIs(t *testing.T) {
	w := newWorld(t)
	provider, certifier := newParty(t, "provider"), newParty(t, "certifier")
	d := draftOf(provider, "DE")
	w.cluster("fra", "eins", d.Offering("c"))
	if message, _ := w.admitted("fra", "UnknownProvider"); !strings.Contains(message, "sluice provider add") {
		t.Errorf("no remedy in %q", message)
	}
	w.provider("eins", provider)
	w.admitted("fra", "NotProven")
	credentials := w.sign(provider, d)
	if a, status := w.present(provider, "/selfdescriptions", credentials...); status != http.StatusCreated {
		t.Fatalf("present: status %d: %s", status, a.Description)
	}
	_, claims := w.admitted("fra", v1alpha1.ReasonReady)
	if got := assurance(claims, v1alpha1.ClaimDatacenterCountry, "DE"); got != v1alpha1.AssuranceSelf {
		t.Errorf("before it is certified the country is worth %q: %v", got, claims)
	}

	must(t, w.Create(t.Context(), &v1alpha1.TrustedIssuer{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "certifier"},
		Spec: v1alpha1.TrustedIssuerSpec{Identified: certifier.identified(t), Assurance: v1alpha1.AssuranceCertified,
			Types: []string{selfdescription.TypeCertification}},
	}))
	certificate := w.certify(certifier, "ISO/IEC 27001", credentials...)
	w.eventually("the certificate is taken", func() string {
		if a, status := w.present(provider, "/selfdescriptions", certificate); status != http.StatusCreated {
			return a.Description
		}
		return ""
	})
	w.eventually("the country is certified", func() string {
		_, claims = w.admitted("fra", v1alpha1.ReasonReady)
		if got := assurance(claims, v1alpha1.ClaimDatacenterCountry, "DE"); got != v1alpha1.AssuranceCertified {
			return "it is worth " + string(got)
		}
		return ""
	})
	if got := assurance(claims, v1alpha1.ClaimCertification, "ISO/IEC 27001"); got != v1alpha1.AssuranceCertified {
		t.Errorf("the certification is worth %q: %v", got, claims)
	}

	t.Run("and withdraws it again", func(t *testing.T) {
		offering := credentials[slices.IndexFunc(credentials, func(compact string) bool {
			c, err := selfdescription.Parse(compact)
			return err == nil && c.Type == selfdescription.TypeComputeServiceOffering
		})]
		digest := selfdescription.DigestOf(offering).String()
		if a, status := w.present(newParty(t, "stranger"), "/selfdescriptions/"+digest+"/revoke", offering); status == http.StatusOK {
			t.Fatalf("a stranger withdrew it: %v", a)
		}
		if a, status := w.present(provider, "/selfdescriptions/"+digest+"/revoke", offering); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, a.Description)
		}
		if _, claims := w.admitted("fra", "NotProven"); len(claims) != 0 {
			t.Errorf("claims are left: %v", claims)
		}
		w.eventually("it does not say any more when it was found to hold, and so has no grace after its end", func() string {
			sd := &v1alpha1.SelfDescription{}
			must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "sd-" + digest}, sd))
			if sd.Status.VerifiedAt != nil {
				return "it does"
			}
			return ""
		})
	})
}

// TestAProviderPresentsBeforeItHasACluster: the server knows the operator's providers without
// any reconciliation.
func TestAProviderPresentsBeforeItHasACluster(t *testing.T) {
	w := newWorld(t)
	provider := newParty(t, "provider")
	credentials := w.sign(provider, draftOf(provider, "DE"))
	if _, status := w.present(provider, "/selfdescriptions", credentials...); status != http.StatusUnprocessableEntity {
		t.Fatalf("before it is known: status %d", status)
	}
	w.provider("eins", provider)
	w.eventually("the provider is in the cache", func() string {
		if err := w.cached.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "eins"}, &v1alpha1.Provider{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if a, status := w.present(provider, "/selfdescriptions", credentials...); status != http.StatusCreated {
		t.Errorf("status %d: %s", status, a.Description)
	}
}

func TestAClusterIsNotAdmittedOnThePapersOfAnother(t *testing.T) {
	w := newWorld(t)
	provider := newParty(t, "provider")
	w.provider("eins", provider)
	d := draftOf(provider, "DE")
	d.Clusters[0].UID = "another"
	w.cluster("fra", "eins", d.Offering("c"))
	w.admitted("fra", "NotProven")
	if a, status := w.present(provider, "/selfdescriptions", w.sign(provider, d)...); status != http.StatusCreated {
		t.Fatalf("status %d: %s", status, a.Description)
	}
	w.eventually("the binding is refused", func() string {
		message, _ := w.admitted("fra", "NotProven")
		if !strings.Contains(message, "binding: ") || !strings.Contains(message, "clusterUID") {
			return message
		}
		return ""
	})
}

func TestAPresentationIsRefused(t *testing.T) {
	w := newWorld(t)
	provider := newParty(t, "provider")
	w.provider("eins", provider)
	w.cluster("fra", "eins", draftOf(provider, "DE").Offering("c"))
	w.admitted("fra", "NotProven") // by then the provider is known
	credentials := w.sign(provider, draftOf(provider, "DE"))
	token := func(audience, nonce string) string {
		compact, err := provider.signer.Presentation(credentials, selfdescription.Expect{Audience: audience, Nonce: nonce, Operation: selfdescription.OperationPresent}, time.Now())
		must(t, err)
		return compact
	}
	stranger, err := newParty(t, "stranger").signer.Presentation(credentials, selfdescription.Expect{Audience: broker, Nonce: w.nonce(selfdescription.OperationPresent), Operation: selfdescription.OperationPresent}, time.Now())
	must(t, err)
	for name, row := range map[string]struct {
		contentType, body string
		status            int
		says              string
	}{
		"that was made for another broker":    {selfdescription.MediaTypePresentation, token("did:web:other.example", w.nonce(selfdescription.OperationPresent)), 422, "/aud"},
		"with a nonce that nobody gave out":   {selfdescription.MediaTypePresentation, token(broker, "bm9uY2U"), 422, "/nonce"},
		"of somebody whom nobody knows":       {selfdescription.MediaTypePresentation, stranger, 422, "key"},
		"that is a credential":                {selfdescription.MediaTypePresentation, credentials[0], 422, "/nonce"},
		"of another media type":               {"application/json", token(broker, w.nonce(selfdescription.OperationPresent)), 415, "Content-Type"},
		"that is larger than anything should": {selfdescription.MediaTypePresentation, strings.Repeat("a", selfdescription.MaxPresentation+1), 413, "longer"},
		"that is not a token":                 {selfdescription.MediaTypePresentation, "hello", 422, "JWT"},
	} {
		t.Run(name, func(t *testing.T) {
			var a answer
			if status := w.post("/selfdescriptions", row.contentType, row.body, &a); status != row.status || !strings.Contains(a.Description, row.says) {
				t.Errorf("want %d with %q, got %d: %s", row.status, row.says, status, a.Description)
			}
		})
	}
	var stored v1alpha1.SelfDescriptionList
	must(t, w.List(t.Context(), &stored, client.InNamespace(w.namespace)))
	if len(stored.Items) > 0 {
		t.Errorf("%d credentials were stored", len(stored.Items))
	}
}

func TestACredentialIsItsIssuersWhoeverPresentedItFirst(t *testing.T) {
	w := newWorld(t)
	provider, rival := newParty(t, "provider"), newParty(t, "rival")
	w.provider("rival", rival)
	w.provider("eins", provider)
	d := draftOf(provider, "DE")
	w.cluster("fra", "eins", d.Offering("c"))
	credentials := w.sign(provider, d)
	for _, p := range []party{rival, provider} {
		w.eventually(p.did+" presents", func() string {
			a, status := w.present(p, "/selfdescriptions", credentials...)
			if status != http.StatusCreated {
				return a.Description
			}
			return ""
		})
	}
	w.eventually("the cluster is admitted", func() string {
		// The cache may not have the rival's credential of a moment ago.
		w.present(provider, "/selfdescriptions", credentials...)
		mc := &v1alpha1.MemberCluster{}
		must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "fra"}, mc))
		if !meta.IsStatusConditionTrue(mc.Status.Conditions, v1alpha1.ConditionAdmitted) {
			return "not yet"
		}
		return ""
	})
	if a, status := w.present(rival, "/selfdescriptions", credentials...); status != http.StatusConflict || !strings.Contains(a.Description, "counts for provider eins") {
		t.Fatalf("status %d: %s", status, a.Description)
	}
	w.admitted("fra", v1alpha1.ReasonReady)
}

func assurance(claims []v1alpha1.Claim, name, value string) v1alpha1.Assurance {
	for _, c := range claims {
		if c.Name == name && c.Value == value {
			return c.Assurance
		}
	}
	return ""
}
