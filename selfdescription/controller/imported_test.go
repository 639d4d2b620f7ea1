package controller

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/selfdescription"
)

// Imported returns a document of did:web:provider.example that jsonld.js signed, and the keys of that issuer.
func Imported(t *testing.T, name string) (document string, keys []jose.JSONWebKey) {
	t.Helper()
	raw, err := os.ReadFile("../legacy/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Keys    []jose.JSONWebKey
		Vectors []struct {
			Name     string
			Document json.RawMessage
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, v := range file.Vectors {
		if v.Name != name {
			continue
		}
		var text bytes.Buffer
		if err := json.Compact(&text, v.Document); err != nil {
			t.Fatal(err)
		}
		return text.String(), file.Keys
	}
	t.Fatalf("there is no document %q", name)
	return "", nil
}

// The validity of the document that the desk imports.
var (
	importedFrom  = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	importedUntil = time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
)

// imported returns a provider's legal person as an operator has imported it, not verified yet.
func (b *desk) imported() *v1alpha1.SelfDescription {
	b.Helper()
	document, keys := Imported(b.T, "legal person, W3C, ES256")
	b.issuer.imported = keys
	sd := presented(document)
	sd.Spec.Legacy = true
	return sd
}

// proves reports whether the credentials on the hub prove the country of the imported legal person, with a grace.
func (b *desk) proves(grace time.Duration) bool {
	b.Helper()
	since := b.clock.Now().Add(-grace)
	set, err := b.Options.credentials(b.Context(), b.hub, v1alpha1.Presenter{Provider: "eins"}, nil, since)
	if err != nil {
		b.Fatal(err)
	}
	claims, _ := selfdescription.Prove(set, provider, b.Book.Picture().Issuers, since)
	for _, claim := range claims {
		if claim.Name == selfdescription.ClaimConsumerCountry && claim.Value == "AT" {
			return true
		}
	}
	return false
}

// TestAnImportedDocumentCountsByItsLastVerification: admission neither asks for its key nor looks at the clock again.
func TestAnImportedDocumentCountsByItsLastVerification(t *testing.T) {
	b := newDesk(t)
	sd := b.imported()
	b.store([]*v1alpha1.SelfDescription{sd})
	b.issuer.fails = unreachable // as after a restart
	if !b.proves(0) {
		t.Errorf("it is %s, and proves nothing while its issuer does not answer: %v", sd.Status.State, sd.Status.Report)
	}
	b.lookAtAll(importedUntil.Add(time.Hour).Sub(start))
	if b.proves(0) {
		t.Error("it counts after its end without grace")
	}
	if !b.proves(day) {
		t.Error("it does not count after its end within the grace")
	}
}

func TestAnImportedDocumentIsLookedAtAgainWhenItBegins(t *testing.T) {
	b := newDesk(t)
	sd := b.imported()
	if again := b.look(sd, importedFrom.Add(-day).Sub(start), nil); again != day || sd.Status.State != v1alpha1.CredentialRejected {
		t.Errorf("a day before, it is %s, and looked at again after %s", sd.Status.State, again)
	}
	if b.look(sd, importedFrom.Sub(start), nil); sd.Status.State != v1alpha1.CredentialVerified {
		t.Errorf("then it is %s: %v", sd.Status.State, sd.Status.Report)
	}
}

// TestAWithdrawnDocumentIsWithdrawnHoweverItIsWritten: white space changes the digest of a document, not its content.
func TestAWithdrawnDocumentIsWithdrawnHoweverItIsWritten(t *testing.T) {
	b := newDesk(t)
	one := b.imported()
	other := presented(strings.Replace(one.Spec.Credential, "{", "{ ", 1))
	other.Spec.Legacy = true
	one.Spec.Revoked = true
	b.store([]*v1alpha1.SelfDescription{one, other})
	if other.Status.State != v1alpha1.CredentialRevoked {
		t.Errorf("the other is %s: %v", other.Status.State, other.Status.Report)
	}
}
