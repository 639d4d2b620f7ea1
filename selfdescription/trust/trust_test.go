package trust

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

const (
	provider = "did:web:provider.example"
	notary   = "did:web:notary.example:registry"
	broker   = "did:web:broker.example"
)

func picture() *Picture {
	r := resources{
		providers: []v1alpha1.Provider{{ObjectMeta: metav1.ObjectMeta{Name: "eins"}, Spec: v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: provider}}}},
		issuers: []v1alpha1.TrustedIssuer{{Spec: v1alpha1.TrustedIssuerSpec{
			Identified: v1alpha1.Identified{DID: notary, Keys: &runtime.RawExtension{Raw: []byte(`{"keys":[]}`)}},
			Types:      []string{"VatID"}, Assurance: v1alpha1.AssuranceNotary,
		}}},
		broker: []v1alpha1.Identity{{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.IdentityName}, Spec: v1alpha1.IdentitySpec{DID: broker}}},
	}
	return r.picture()
}

func TestOfPresentersWithOneDIDTheFirstProviderByNameIsMeant(t *testing.T) {
	var r resources
	for _, name := range []string{"zwei", "eins", "drei"} {
		r.providers = append(r.providers, v1alpha1.Provider{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: provider}},
		})
	}
	r.consumers = []v1alpha1.Consumer{{
		ObjectMeta: metav1.ObjectMeta{Name: "aaa"}, Spec: v1alpha1.ConsumerSpec{Identified: v1alpha1.Identified{DID: provider}},
	}}
	if who, _ := r.picture().PresenterOf(provider); who != (v1alpha1.Presenter{Provider: "drei"}) {
		t.Errorf("it is %s", who)
	}
	r.providers = nil
	if who, _ := r.picture().PresenterOf(provider); who != (v1alpha1.Presenter{Consumer: "aaa"}) {
		t.Errorf("without providers, it is %s", who)
	}
}

func TestAPictureIsTakenAnewWhenSomethingHasChanged(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "eins"}, Spec: v1alpha1.ProviderSpec{Identified: v1alpha1.Identified{DID: provider}}}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(p).Build()
	book := &Book{}
	refresh := func() *Picture {
		t.Helper()
		if err := book.Refresh(t.Context(), hub, "ns"); err != nil {
			t.Fatal(err)
		}
		return book.Picture()
	}
	first := refresh()
	if did, _ := first.DID(v1alpha1.Presenter{Provider: "eins"}); did != provider {
		t.Fatalf("the provider is %q", did)
	}
	if refresh() != first {
		t.Error("it was taken anew though nothing has changed")
	}
	p.Spec.DID = "did:web:moved.example"
	if err := hub.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if did, _ := refresh().DID(v1alpha1.Presenter{Provider: "eins"}); did != p.Spec.DID {
		t.Errorf("after an update the provider is %q", did)
	}
	if err := hub.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, ok := refresh().DID(v1alpha1.Presenter{Provider: "eins"}); ok {
		t.Error("a provider that is gone is still known")
	}
}

func TestAWordCountsForWhatTheOperatorSaid(t *testing.T) {
	for _, row := range []struct {
		issuer, kind string
		want         selfdescription.Assurance
	}{
		{provider, "LegalPerson", selfdescription.Self},
		{provider, selfdescription.TypeClusterMeasurement, ""},
		{notary, "VatID", selfdescription.Notary},
		{notary, "LegalPerson", ""},
		{broker, selfdescription.TypeClusterMeasurement, selfdescription.Measured},
		{broker, "LegalPerson", selfdescription.Self},
		{"", "LegalPerson", ""},
		{"did:web:stranger.example", "LegalPerson", ""},
	} {
		got, ok := picture().Issuers(row.issuer, row.kind)
		if !ok {
			got = ""
		}
		if got != row.want {
			t.Errorf("%s on %s: want %q, got %q", row.issuer, row.kind, row.want, got)
		}
	}
}

func TestOnlyHostsOfThoseWithoutKeysOfTheirOwnAreAsked(t *testing.T) {
	book := &Book{}
	if book.Hosts("provider.example") {
		t.Error("a book that was never read allows a host")
	}
	book.picture.Store(picture())
	if !book.Hosts("provider.example") {
		t.Error("the host of a provider without keys may not be asked")
	}
	if book.Hosts("notary.example") || book.Hosts("stranger.example") {
		t.Error("the host of somebody whose keys are known, or of a stranger, may be asked")
	}
}

func TestStatusListsMayBeAtTheHostOfEveryKnownDID(t *testing.T) {
	book := &Book{}
	if book.ListHosts("provider.example") {
		t.Error("a book that was never read allows a host")
	}
	book.picture.Store(picture())
	if !book.ListHosts("provider.example") || !book.ListHosts("notary.example") {
		t.Error("the host of a provider, or of an issuer whose keys are known, may not be asked for status lists")
	}
	if book.ListHosts("stranger.example") {
		t.Error("the host of a stranger may be asked")
	}
}

func TestKeysThatCannotBeReadAreNotReplacedByFetchedOnes(t *testing.T) {
	p := blank()
	p.know(&v1alpha1.Identified{DID: provider, Keys: &runtime.RawExtension{Raw: []byte(`{"keys": "none"}`)}})
	if keys, ok := p.keys[provider]; !ok || len(keys.Keys) > 0 || p.keyHosts["provider.example"] {
		t.Errorf("keys %v, configured %t, host allowed %t", keys, ok, p.keyHosts["provider.example"])
	}
}
