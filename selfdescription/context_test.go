package selfdescription

import (
	"encoding/json"
	"os"
	"testing"
)

// A term of Sluice's that is not protected could be redefined by a later context.
func TestEveryScopeOfOurContextIsProtected(t *testing.T) {
	var document struct {
		Context map[string]any `json:"@context"`
	}
	if err := json.Unmarshal(sluiceContext, &document); err != nil {
		t.Fatal(err)
	}
	var check func(scope map[string]any, path string)
	check = func(scope map[string]any, path string) {
		if scope["@protected"] != true {
			t.Errorf("%s: not protected", path)
		}
		if scope["@vocab"] != nil {
			t.Errorf("%s: has a vocabulary for terms that it does not define", path)
		}
		for name, term := range scope {
			if definition, ok := term.(map[string]any); ok {
				if nested, ok := definition["@context"].(map[string]any); ok {
					check(nested, path+"/"+name)
				}
			}
		}
	}
	check(document.Context, "@context")
	for _, name := range []string{TypeClusterBinding, TypeClusterMeasurement, TypeCertification} {
		if document.Context[name] == nil || contextOf(name) != ContextSluice {
			t.Errorf("%s is not defined", name)
		}
	}
}

// Others pin the digest of Sluice's own context: a change of a published term needs a new URL.
func TestOurContextIsPinned(t *testing.T) {
	golden, err := os.ReadFile("testdata/ns.v1.sri")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Contexts() {
		if c.URL == ContextSluice && c.Digest.SRI()+"\n" != string(golden) {
			t.Errorf("%s is %s now; who pinned it has %s", c.URL, c.Digest.SRI(), golden)
		}
		if c.URL != ContextSluice && c.Document != nil || c.Digest == (Digest{}) {
			t.Errorf("%s: document or digest", c.URL)
		}
	}
}

func TestADigestIsReadInBothSpellings(t *testing.T) {
	want := DigestOf("x")
	for _, sri := range []string{want.SRI(), sriPrefix + want.String()} {
		if got, err := ParseSRI(sri); err != nil || got != want {
			t.Errorf("%s: %s, %v", sri, got, err)
		}
	}
	for _, sri := range []string{"", want.String(), "sha256-", "sha512-" + want.String(), want.SRI() + "=", sriPrefix + "AAAA", sriPrefix + want.String()[:62] + "zz"} {
		if got, err := ParseSRI(sri); err == nil {
			t.Errorf("%q: %s", sri, got)
		}
	}
}
