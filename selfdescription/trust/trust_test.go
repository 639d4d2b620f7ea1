package trust

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

const (
	provider = "did:web:provider.example"
	notary   = "did:web:notary.example:registry"
	broker   = "did:web:broker.example"
)

func picture() *Picture {
	p := blank()
	p.providers["eins"] = provider
	p.know(&v1alpha1.Identified{DID: provider})
	p.know(&v1alpha1.Identified{DID: notary, Keys: &runtime.RawExtension{Raw: []byte(`{"keys":[]}`)}})
	p.grant(notary, "VatID", selfdescription.Notary)
	p.knowBroker(&v1alpha1.IdentitySpec{DID: broker})
	return p
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

func TestKeysThatCannotBeReadAreNotReplacedByFetchedOnes(t *testing.T) {
	p := blank()
	p.know(&v1alpha1.Identified{DID: provider, Keys: &runtime.RawExtension{Raw: []byte(`{"keys": "none"}`)}})
	if keys, ok := p.keys[provider]; !ok || len(keys.Keys) > 0 || p.hosts["provider.example"] {
		t.Errorf("keys %v, configured %t, host allowed %t", keys, ok, p.hosts["provider.example"])
	}
}
