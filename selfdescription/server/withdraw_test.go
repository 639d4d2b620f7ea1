package server

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/sdtest"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

func signed(t *testing.T, issuer string, subject map[string]any) string {
	t.Helper()
	key, err := selfdescription.GenerateKey("ES256", issuer+"#key-1")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := selfdescription.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	compact, err := signer.Credential(selfdescription.Document{Subject: subject, ValidFrom: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return compact
}

// TestAnotherFormOfACredentialGivesNoRightToWithdrawIt: a certification is about two providers. The second one that
// presents it cannot withdraw it, although it has it in a form of its own.
func TestAnotherFormOfACredentialGivesNoRightToWithdrawIt(t *testing.T) {
	eins, zwei := v1alpha1.Presenter{Provider: "eins"}, v1alpha1.Presenter{Provider: "zwei"}
	did := func(who v1alpha1.Presenter) string { return "did:web:" + who.Provider + ".example" }
	s := newStock(t)
	s.Book = &trust.Book{}
	var about []any
	for _, who := range []v1alpha1.Presenter{eins, zwei} {
		own := signed(t, did(who), map[string]any{"id": "https://" + who.Provider + ".example/vat", "type": "VatID", "vatID": "DE123456789"})
		about = append(about, map[string]any{"digestSRI": selfdescription.DigestOf(own).SRI()})
		if err := errors.Join(s.Hub.Create(t.Context(), stored(own, who)), s.Hub.Create(t.Context(), &v1alpha1.Provider{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: who.Provider},
			Spec:       v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: did(who)}},
		})); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Book.Refresh(t.Context(), s.Hub, "ns"); err != nil {
		t.Fatal(err)
	}
	certification := signed(t, "did:web:certifier.example", map[string]any{
		"id": "https://certifier.example/1", "type": selfdescription.TypeCertification, "standard": "ISO/IEC 27001", "certifiedCredentials": about,
	})
	first, second := stored(certification, eins), stored(sdtest.Negated(t, certification), zwei)
	// The hub has moved since, and the second arrived first.
	first.Annotations = map[string]string{v1alpha1.AnnotationCreated: "2026-11-27T00:00:00Z"}
	second.Annotations = map[string]string{v1alpha1.AnnotationCreated: "2026-11-27T00:00:01Z"}
	first.CreationTimestamp, second.CreationTimestamp = metav1.Date(2026, 11, 28, 0, 0, 1, 0, time.UTC), metav1.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	if err := errors.Join(s.Hub.Create(t.Context(), first), s.Hub.Create(t.Context(), second)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.withdraw(t.Context(), second.Name, zwei, did(zwei)); !errors.Is(err, errForbidden) {
		t.Errorf("the second withdraws its form: %v", err)
	}
	if sd, err := s.withdraw(t.Context(), first.Name, eins, did(eins)); err != nil || !sd.Spec.Revoked {
		t.Errorf("the first withdraws it: %v", err)
	}
}
