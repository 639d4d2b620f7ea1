package legacy

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/strictjson"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/legacy/rdfc"
)

// maxDepth is how deep a document may be nested.
const maxDepth = 32

// The vocabulary of credentials that is read here (the same in VCDM 1.1 and 2.0).
const (
	cred                 = "https://www.w3.org/2018/credentials#"
	verifiableCredential = cred + "VerifiableCredential"
)

// document is a credential with a JSON-LD proof: the content of its RDF, and the proof.
type document struct {
	contexts []any
	quads    []rdfc.Quad
	proof    proof
	// empty are JSON pointers to empty arrays.
	empty []string

	id, issuer  string
	from, until time.Time
	// subject is the expanded credentialSubject.
	subject map[string]any
	// hasStatus is true if there is a credentialStatus.
	hasStatus bool
}

// read decodes and expands a document. It verifies nothing.
func read(text string) (*document, error) {
	var decoded map[string]any
	limits := strictjson.Limits{Bytes: selfdescription.MaxCredential, Depth: maxDepth, Object: true}
	if err := strictjson.Decode(strings.NewReader(text), limits, &decoded); err != nil {
		return nil, err
	}
	contexts, err := contextsOf(decoded["@context"])
	if err != nil {
		return nil, err
	}
	delete(decoded, "@context")
	d := &document{contexts: contexts}
	members, err := d.plain(decoded, "")
	if err != nil {
		return nil, err
	}
	content := members.(map[string]any)
	if d.proof, err = readProof(content["proof"]); err != nil {
		return nil, err
	}
	delete(content, "proof")
	if hasOnlyHash(content) {
		return nil, errors.New("/credentialSubject: a compliance service's signature over a hash alone proves nothing here; import the credential that it is about")
	}
	content["@context"] = contexts
	node, err := expand(content)
	if err != nil {
		return nil, err
	}
	if d.quads, err = dataset(node); err != nil {
		return nil, err
	}
	return d, d.readCredential(node)
}

// contextsOf requires URLs of the list, the one of credentials first.
func contextsOf(value any) ([]any, error) {
	list, isArray := value.([]any)
	if !isArray {
		list = []any{value}
	}
	for i, element := range list {
		url, ok := element.(string)
		if !ok {
			return nil, fmt.Errorf("/@context/%d: want a URL, got an inline context", i)
		}
		if i == 0 && url != ContextCredentialsV1 && url != selfdescription.ContextCredentials {
			return nil, fmt.Errorf("/@context/0: want %s or %s, got %.120q", ContextCredentialsV1, selfdescription.ContextCredentials, url)
		}
		if !slices.ContainsFunc(known, func(c selfdescription.Context) bool { return c.URL == url }) {
			return nil, fmt.Errorf("/@context/%d: %.120q is not on the list", i, url)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("/@context: want one")
	}
	return list, nil
}

// plain copies a JSON value, with numbers in JSON-LD's form. It refuses members that expansion
// would drop silently or that change the meaning of others. An empty array states nothing, so
// it is not signed: it is left out, and listed as unsigned.
func (d *document) plain(value any, path string) (any, error) {
	switch value := value.(type) {
	case nil:
		return nil, fmt.Errorf("%s: null is dropped by JSON-LD, and so not signed", path)
	case json.Number:
		number, err := value.Float64()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return number, nil
	case []any:
		list := make([]any, 0, len(value))
		for i, element := range value {
			at := fmt.Sprintf("%s/%d", path, i)
			if isEmpty(element) {
				d.empty = append(d.empty, at)
				continue
			}
			copied, err := d.plain(element, at)
			if err != nil {
				return nil, err
			}
			list = append(list, copied)
		}
		return list, nil
	case map[string]any:
		object := make(map[string]any, len(value))
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at := fmt.Sprintf("%s/%.120s", path, name)
			if name == "@context" && d.repeats(value[name]) {
				object[name] = value[name]
				continue
			}
			if strings.HasPrefix(name, "@") && !slices.Contains([]string{"@id", "@type", "@value", "@language"}, name) {
				return nil, fmt.Errorf("%s: no such keyword of JSON-LD is read in credentials", at)
			}
			if isEmpty(value[name]) {
				d.empty = append(d.empty, at)
				continue
			}
			copied, err := d.plain(value[name], at)
			if err != nil {
				return nil, err
			}
			object[name] = copied
		}
		return object, nil
	}
	return value, nil
}

// repeats reports whether a nested context is the document's own context of release 22.10.
// Subjects of 2023 have it a second time. It has only prefixes, and so changes nothing.
func (d *document) repeats(value any) bool {
	return value == any(ContextGaiaX2210) && slices.Contains(d.contexts, value)
}

// isEmpty reports whether a value is an array that contains only empty arrays.
func isEmpty(value any) bool {
	list, ok := value.([]any)
	return ok && !slices.ContainsFunc(list, func(element any) bool { return !isEmpty(element) })
}

// hasOnlyHash reports whether a subject has only an id and a hash, as in the credentials that the compliance service of
// Gaia-X issued in 2022. Their signature covers nothing else.
func hasOnlyHash(content map[string]any) bool {
	subject, _ := content["credentialSubject"].(map[string]any)
	return len(subject) == 2 && subject["id"] != nil && subject["hash"] != nil
}

// sum returns the digest of the canonical document.
func (d *document) sum() (selfdescription.Digest, error) {
	canonical, err := rdfc.Canonicalize(d.quads, 0)
	return sha256.Sum256([]byte(canonical)), err
}

// readCredential reads the common properties of credentials from the expansion.
func (d *document) readCredential(node map[string]any) error {
	d.id, _ = node["@id"].(string)
	types, _ := node["@type"].([]any)
	if !slices.Contains(types, any(verifiableCredential)) || d.credentials() != 1 {
		return fmt.Errorf("/type: want VerifiableCredential to be one of them, and of no other node")
	}
	_, d.hasStatus = node[cred+"credentialStatus"]
	issuer, err := only(node, "issuer")
	if err != nil {
		return err
	}
	if d.issuer, _ = issuer["@id"].(string); d.issuer == "" {
		return fmt.Errorf("/issuer: want a DID")
	}
	if d.subject, err = only(node, "credentialSubject"); err != nil {
		return err
	}
	if id, _ := d.subject["@id"].(string); id == "" || strings.HasPrefix(id, "_:") {
		return fmt.Errorf("/credentialSubject/id: want a URL")
	}
	return d.readDates(node)
}

// credentials counts the nodes that are credentials.
func (d *document) credentials() int {
	count := 0
	for _, q := range d.quads {
		if q.Predicate.Value == rdfType && q.Object.Value == verifiableCredential {
			count++
		}
	}
	return count
}

// readDates sets the narrowest window of all dates: issuanceDate and expirationDate of VCDM
// 1.1, and validFrom and validUntil of 2.0.
func (d *document) readDates(node map[string]any) error {
	for _, name := range []string{"issuanceDate", "validFrom", "expirationDate", "validUntil"} {
		if _, there := node[cred+name]; !there {
			continue
		}
		literal, err := only(node, name)
		if err != nil {
			return err
		}
		text, _ := literal["@value"].(string)
		date, err := selfdescription.ParseDateTime(text)
		if err != nil {
			return fmt.Errorf("/%s: want a date and time, got %.80q", name, text)
		}
		switch name {
		case "issuanceDate", "validFrom":
			if date.After(d.from) {
				d.from = date
			}
		default:
			if d.until.IsZero() || date.Before(d.until) {
				d.until = date
			}
		}
	}
	if d.from.IsZero() {
		return fmt.Errorf("/issuanceDate: want a date")
	}
	return nil
}

// only returns the single value of a property of a credential.
func only(node map[string]any, name string) (map[string]any, error) {
	values, _ := node[cred+name].([]any)
	if len(values) != 1 {
		return nil, fmt.Errorf("/%s: want one, got %d", name, len(values))
	}
	value, ok := values[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("/%s: want an object, got %T", name, values[0])
	}
	return value, nil
}
