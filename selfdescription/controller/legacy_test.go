package controller_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/controller"
)

// A document that jsonld.js signed in 2022's dialect, which an operator imported.
func TestAnImportedDocumentIsVerifiedAndSaysWhatItsFormLeavesUnsigned(t *testing.T) {
	document, published := controller.Imported(t, "data centre with numbers, Gaia-X 2022, ES256")
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: published})
	must(t, err)

	w := newWorld(t)
	must(t, w.Create(t.Context(), &v1alpha1.Provider{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "eins"},
		Spec:       v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: "did:web:provider.example", Keys: &runtime.RawExtension{Raw: keys}}},
	}))
	t.Run("by the key that the operator names", func(t *testing.T) {
		w := newWorld(t)
		w.provider("eins", newParty(t, "provider")) // another key than the one it is signed with
		sd := &v1alpha1.SelfDescription{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(document))},
			Spec:       v1alpha1.SelfDescriptionSpec{Credential: document, Legacy: true, Presenter: v1alpha1.Presenter{Provider: "eins"}, KeyID: "did:web:provider.example#key-1"},
		}
		must(t, w.Create(t.Context(), sd))
		w.eventually("that key is looked for", func() string {
			must(t, w.Get(t.Context(), client.ObjectKeyFromObject(sd), sd))
			if report := reportOf(sd); sd.Status.State != v1alpha1.CredentialRejected || !strings.Contains(report, "did:web:provider.example#key-1") {
				return report
			}
			return ""
		})
	})
	tampered := strings.Replace(document, `"DE"`, `"US"`, 1)
	for text, want := range map[string]v1alpha1.CredentialState{document: v1alpha1.CredentialVerified, tampered: v1alpha1.CredentialRejected} {
		sd := &v1alpha1.SelfDescription{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.SelfDescriptionName(selfdescription.DigestOf(text))},
			Spec:       v1alpha1.SelfDescriptionSpec{Credential: text, Legacy: true, Presenter: v1alpha1.Presenter{Provider: "eins"}},
		}
		must(t, w.Create(t.Context(), sd))
		w.eventually("the document is "+string(want), func() string {
			must(t, w.Get(t.Context(), client.ObjectKeyFromObject(sd), sd))
			if sd.Status.State != want {
				return string(sd.Status.State) + " " + reportOf(sd)
			}
			return ""
		})
		if want == v1alpha1.CredentialVerified && !strings.Contains(reportOf(sd), "leaves unsigned") {
			t.Errorf("the report does not say what is not signed:\n%s", reportOf(sd))
		}
	}
}

func reportOf(sd *v1alpha1.SelfDescription) string {
	report, _ := json.Marshal(sd.Status.Report)
	return string(report)
}
