package legacy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/selfdescription/did"
	"github.com/sluice-dev/sluice/selfdescription/legacy/rdfc"
)

// Numbers in the forms of JSON-LD 1.1 API, 7.2 and 8.6, as ECMAScript writes them.
func TestLiteralsHaveTheirCanonicalForm(t *testing.T) {
	for _, row := range []struct {
		object object
		want   string
	}{
		{object{"@value": "a"}, `"a"`},
		{object{"@value": "a", "@language": "de"}, `"a"@de`},
		{object{"@value": "a", "@type": xsd + "string"}, `"a"`},
		{object{"@value": true}, `"true"^^<` + xsdBoolean + `>`},
		{object{"@value": false, "@type": "urn:ex:t"}, `"false"^^<urn:ex:t>`},
		{object{"@value": 5.0}, `"5"^^<` + xsdInteger + `>`},
		{object{"@value": math.Copysign(0, -1)}, `"0"^^<` + xsdInteger + `>`},
		{object{"@value": -1e20}, `"-100000000000000000000"^^<` + xsdInteger + `>`},
		{object{"@value": 1e21}, `"1.0E21"^^<` + xsdDouble + `>`},
		{object{"@value": 5.0, "@type": xsdDouble}, `"5.0E0"^^<` + xsdDouble + `>`},
		{object{"@value": 97.5, "@type": xsd + "float"}, `"9.75E1"^^<` + xsd + `float>`},
		{object{"@value": 5.5}, `"5.5E0"^^<` + xsdDouble + `>`},
		{object{"@value": -0.00000017}, `"-1.7E-7"^^<` + xsdDouble + `>`},
		{object{"@value": 0.1 + 0.2}, `"3.0E-1"^^<` + xsdDouble + `>`},
	} {
		literal, err := literal(row.object)
		if err != nil {
			t.Errorf("%v: %v", row.object, err)
			continue
		}
		if got, want := canonical(t, rdfc.Quad{Subject: iri("urn:ex:s"), Predicate: iri("urn:ex:p"), Object: literal}),
			"<urn:ex:s> <urn:ex:p> "+row.want+" .\n"; got != want {
			t.Errorf("%v is %s, want %s", row.object, got, want)
		}
	}
}

func TestAListIsLinkedInItsOrder(t *testing.T) {
	quads, err := dataset(object{"@id": "urn:ex:s", "urn:ex:p": []any{object{"@list": []any{object{"@value": "a"}, object{"@value": "b"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `<urn:ex:s> <urn:ex:p> _:c14n1 .
_:c14n0 <` + rdfFirst + `> "b" .
_:c14n0 <` + rdfRest + `> <` + rdfNil + `> .
_:c14n1 <` + rdfFirst + `> "a" .
_:c14n1 <` + rdfRest + `> _:c14n0 .
`
	if got := canonical(t, quads...); got != want {
		t.Errorf("list is\n%s, want\n%s", got, want)
	}
	if quads, err := dataset(object{"@id": "urn:ex:s", "urn:ex:p": []any{object{"@list": []any{}}}}); err != nil || quads[0].Object.Value != rdfNil {
		t.Errorf("%v %v", quads, err)
	}
}

// A document cannot give a blank node the name of a node without a name.
func TestNamesOfBlankNodesDoNotCollide(t *testing.T) {
	quads, err := dataset(object{"@id": "urn:ex:s", "urn:ex:p": []any{object{"urn:ex:q": []any{object{"@value": "a"}}}, object{"@id": "_:u1"}, object{"@id": "_:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, q := range quads {
		if q.Object.Kind == rdfc.Blank {
			names[q.Object.Value] = true
		}
	}
	if len(names) != 3 {
		t.Errorf("names %v", names)
	}
}

func TestKeysOfTheAlgorithmsKindOnly(t *testing.T) {
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range []string{"EdDSA", "ES256", "ES384", "PS256", "RS256"} {
		for _, key := range []any{p521.Public(), short.Public(), []byte("secret")} {
			if err := did.Fits(algorithm, &jose.JSONWebKey{Key: key}); err == nil {
				t.Errorf("%T is accepted for %s", key, algorithm)
			}
		}
	}
}

func canonical(t *testing.T, quads ...rdfc.Quad) string {
	t.Helper()
	text, err := rdfc.Canonicalize(quads, 0)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
