package legacy

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/sluice-dev/sluice/selfdescription"
)

// FuzzImport checks that any document is refused or has the content of one of the signed ones:
// without a key it cannot be made to say anything else.
func FuzzImport(f *testing.F) {
	all, importer := vectors(f)
	signed := map[selfdescription.Digest]*selfdescription.Credential{}
	for _, vector := range all {
		credential, report := importer.Import(f.Context(), string(vector.Document))
		if credential == nil {
			f.Fatalf("%s\n%s", vector.Name, &report.Report)
		}
		signed[credential.Signed] = credential
		f.Add([]byte(vector.Document))
	}
	f.Add([]byte(`{"@context":["https://www.w3.org/2018/credentials/v1"],"proof":{"jws":"e30.."}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		credential, report := importer.Import(t.Context(), string(document))
		if credential == nil {
			if failed := report.Failed(); failed == nil || failed.Message == "" || report.State == selfdescription.Verified {
				t.Fatalf("refused without a reason:\n%s", &report.Report)
			}
			return
		}
		original := signed[credential.Signed]
		if original == nil {
			t.Fatalf("accepted: %s", document)
		}
		if !reflect.DeepEqual(credential.Claims, original.Claims) || credential.Subject != original.Subject || credential.Type != original.Type {
			t.Errorf("claims %v, signed %v", credential.Claims, original.Claims)
		}
		if !credential.ValidUntil.Equal(original.ValidUntil) || !credential.ValidFrom.Equal(original.ValidFrom) {
			t.Errorf("valid from %s until %s, signed %s and %s", credential.ValidFrom, credential.ValidUntil, original.ValidFrom, original.ValidUntil)
		}
	})
}

// FuzzDataset checks that a readable document gives the same when read again, and that other
// documents do no harm.
func FuzzDataset(f *testing.F) {
	all, _ := vectors(f)
	for _, vector := range all {
		if bytes.Contains(vector.Document, []byte("#ES256")) {
			f.Add([]byte(vector.Document))
		}
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		first, err := read(string(document))
		if err != nil {
			return
		}
		second, err := read(string(document))
		if err != nil {
			t.Fatal(err)
		}
		a, errA := first.signable()
		b, errB := second.signable()
		if (errA == nil) != (errB == nil) || !reflect.DeepEqual(a, b) {
			t.Errorf("signed once %v %v, then %v %v", a, errA, b, errB)
		}
	})
}
