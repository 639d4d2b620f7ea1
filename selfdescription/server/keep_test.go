package server

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/trust"
)

var (
	provider, rival, buyer = v1alpha1.Presenter{Provider: "provider"}, v1alpha1.Presenter{Provider: "rival"}, v1alpha1.Presenter{Consumer: "buyer"}

	notary = "did:web:notary.example"
)

// newMarketplace returns a server that knows two providers and a consumer, NAME at did:web:NAME.example.
func newMarketplace(t *testing.T) *stock {
	t.Helper()
	known := func(name string) (metav1.ObjectMeta, v1alpha1.Identified) {
		return metav1.ObjectMeta{Namespace: "ns", Name: name}, v1alpha1.Identified{DID: "did:web:" + name + ".example"}
	}
	var has []client.Object
	for _, who := range []v1alpha1.Presenter{provider, rival} {
		p := &v1alpha1.Provider{}
		p.ObjectMeta, p.Spec.Identified = known(who.Provider)
		has = append(has, p)
	}
	c := &v1alpha1.Consumer{}
	c.ObjectMeta, c.Spec.Identified = known(buyer.Consumer)
	s := newStock(t, append(has, c)...)
	s.Book = &trust.Book{}
	if err := s.Book.Refresh(t.Context(), s.Hub, "ns"); err != nil {
		t.Fatal(err)
	}
	return s
}

// holder returns the presenter that a credential is stored for.
func (s *stock) holder(credential string) v1alpha1.Presenter {
	s.Helper()
	sd := &v1alpha1.SelfDescription{}
	if err := s.Hub.Get(s.Context(), client.ObjectKeyFromObject(stored(credential, provider)), sd); err != nil {
		s.Fatal(err)
	}
	return sd.Spec.Presenter
}

// datacentre returns a data centre by the notary under its own id, which names somebody in a member.
func datacentre(t *testing.T, member string, who any) string {
	t.Helper()
	return signed(t, notary, map[string]any{"id": "https://notary.example/datacentres/1", "type": selfdescription.TypeDatacenter, member: who})
}

// TestARivalCannotWithholdADataCentre: the credential counts for the provider that it names, whoever presented it first. That
// gives the provider no right to withdraw it.
func TestARivalCannotWithholdADataCentre(t *testing.T) {
	for member, who := range map[string]any{
		"maintainedBy": map[string]any{"id": "https://provider.example/sd/person"},
		"ownedBy":      []any{"did:web:other.example", "did:web:provider.example#person"},
	} {
		s := newMarketplace(t)
		credential := datacentre(t, member, who)
		for _, presenter := range []v1alpha1.Presenter{buyer, rival} { // neither has a right to it
			refusal := s.taken(presenter, credential)
			if presenter == rival && (refusal == nil || refusal.Status != http.StatusConflict || !strings.Contains(refusal.Description, "counts for another presenter,")) {
				t.Errorf("%s: what a consumer presents is told to nobody else: %+v", member, refusal)
			}
		}
		if refusal := s.taken(provider, credential); refusal != nil || s.holder(credential) != provider {
			t.Errorf("%s: presented by the provider it is of %s, %+v", member, s.holder(credential), refusal)
		}
		refusal := s.taken(rival, signed(t, "did:web:rival.example", map[string]any{"id": "https://rival.example/1", "type": "VatID"}), credential)
		if refusal == nil || refusal.Status != http.StatusConflict || !strings.Contains(refusal.Description, "(Datacenter) counts for provider provider,") || s.holder(credential) != provider {
			t.Errorf("%s: presented by the rival it is of %s, %+v", member, s.holder(credential), refusal)
		}
		if n := s.count(); n != 1 {
			t.Errorf("%s: %d credentials are stored, of which one was refused", member, n)
		}
		if _, err := s.withdraw(t.Context(), stored(credential, provider).Name, provider, "did:web:provider.example"); !errors.Is(err, errForbidden) {
			t.Errorf("%s: the provider withdraws it: %v", member, err)
		}
	}
}

// TestAnIdThatAnybodyCanGiveGivesNoRight: a rival can name its legal person by any id, but nobody's host is its own.
func TestAnIdThatAnybodyCanGiveGivesNoRight(t *testing.T) {
	s := newMarketplace(t)
	credential := datacentre(t, "maintainedBy", "https://registry.example/provider")
	if refusal := s.taken(provider, credential); refusal != nil {
		t.Fatal(refusal)
	}
	if refusal := s.taken(rival, credential); refusal == nil || s.holder(credential) != provider {
		t.Errorf("it is of %s now", s.holder(credential))
	}
	other := signed(t, notary, map[string]any{"id": "https://notary.example/1", "type": selfdescription.TypeCertification, "maintainedBy": "https://rival.example/sd/person"})
	if refusal := s.taken(provider, other); refusal != nil {
		t.Fatal(refusal)
	}
	if refusal := s.taken(rival, other); refusal == nil || s.holder(other) != provider {
		t.Errorf("what is no resource is of %s now", s.holder(other))
	}
}

// TestAProviderGetsWhatItPresentedAsAConsumer: the operator has added it as a provider later.
func TestAProviderGetsWhatItPresentedAsAConsumer(t *testing.T) {
	s := newMarketplace(t)
	c, as := &v1alpha1.Consumer{}, v1alpha1.Presenter{Consumer: "as-consumer"}
	c.Namespace, c.Name, c.Spec.DID = "ns", as.Consumer, "did:web:provider.example"
	if err := errors.Join(s.Hub.Create(t.Context(), c), s.Book.Refresh(t.Context(), s.Hub, "ns")); err != nil {
		t.Fatal(err)
	}
	own := signed(t, c.Spec.DID, map[string]any{"id": "https://provider.example/dc", "type": selfdescription.TypeDatacenter})
	for _, who := range []v1alpha1.Presenter{as, provider} {
		if refusal := s.taken(who, own); refusal != nil || s.holder(own) != who {
			t.Errorf("presented by %s it is of %s, %+v", who, s.holder(own), refusal)
		}
	}
}

// TestACertificationIsTakenOverWithWhatItCertifies: the rival has presented it before the provider presents anything.
func TestACertificationIsTakenOverWithWhatItCertifies(t *testing.T) {
	s := newMarketplace(t)
	own := signed(t, "did:web:provider.example", map[string]any{"id": "https://provider.example/dc", "type": selfdescription.TypeDatacenter})
	certification := signed(t, notary, map[string]any{
		"id": "https://notary.example/1", "type": selfdescription.TypeCertification, "standard": "ISO/IEC 27001",
		"certifiedCredentials": []any{map[string]any{"digestSRI": selfdescription.DigestOf(own).SRI()}},
	})
	if refusal := s.taken(rival, certification, own); refusal != nil {
		t.Fatal(refusal)
	}
	if err := s.Hub.Delete(t.Context(), stored(own, rival)); err != nil {
		t.Fatal(err)
	}
	if refusal := s.taken(provider, certification, own); refusal != nil || s.holder(certification) != provider || s.holder(own) != provider {
		t.Errorf("they are of %s and %s, %+v", s.holder(certification), s.holder(own), refusal)
	}
}
