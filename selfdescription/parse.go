package selfdescription

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parse reads a VC-JWT without verifying it: its content may be forged. Use it to show
// credentials that a [Verifier] refused.
func Parse(compact string) (*Credential, error) {
	_, credential, err := parseCredential(compact, MaxCredential)
	return credential, err
}

func parseCredential(compact string, limit int) (*token, *Credential, error) {
	t, err := parseToken(compact, limit, credentialMedia)
	if err != nil {
		return nil, nil, err
	}
	c := &Credential{
		Compact: compact, Digest: DigestOf(compact), Signed: SignedOf(compact),
		Issuer: t.issuer, KeyID: t.keyID, Algorithm: t.algorithm,
		ValidFrom: t.from, ValidUntil: t.until,
	}
	if err := c.readDocument(t); err != nil {
		return nil, nil, fmt.Errorf("payload: %w", err)
	}
	return t, c, nil
}

func (c *Credential) readDocument(t *token) error {
	if !hasType(t.payload["type"], typeVerifiableCredential) {
		return fmt.Errorf("/type: want %s to be one of them", typeVerifiableCredential)
	}
	if _, there := t.payload["aud"]; there { // RFC 7519, 4.1.3
		return errors.New("/aud: only presentations have an audience; a credential is for everybody")
	}
	c.types = t.payload["type"]
	if _, err := issuerOf(t.payload["issuer"]); err != nil {
		return err
	}
	if err := t.isIssuer(t.payload, "issuer"); err != nil {
		return err
	}
	var ok bool
	if c.raw, ok = t.payload["credentialSubject"].(map[string]any); !ok {
		return fmt.Errorf("/credentialSubject: want one object, got %s", brief(t.payload["credentialSubject"]))
	}
	subject, err := readSubject(c.raw)
	if err != nil {
		return err
	}
	c.Claims = subject
	if c.Subject, _ = subject["id"].(string); !strings.Contains(c.Subject, ":") {
		return fmt.Errorf("/credentialSubject/id: want a URL, got %s", brief(subject["id"]))
	}
	if c.Type, err = text(subject, "type"); err != nil {
		return fmt.Errorf("/credentialSubject%w", err)
	}
	if want := contextOf(c.Type); want != "" && !hasContext(t.payload, want) {
		return fmt.Errorf("/@context: want %q, which defines %s", want, brief(c.Type))
	}
	if id, there := t.payload["id"]; there {
		if c.ID, err = text(t.payload, "id"); err != nil {
			return err
		}
		if jti, there := t.payload["jti"]; there && jti != id {
			return fmt.Errorf("/jti: want the id, %s, got %v", brief(id), brief(jti))
		}
	}
	if sub, there := t.payload["sub"]; there && sub != c.Subject {
		return fmt.Errorf("/sub: want the id of the subject, %s, got %v", brief(c.Subject), brief(sub))
	}
	c.Status, err = readStatus(t.payload["credentialStatus"])
	return err
}

// issuerOf reads a URL, or an object with an id (VCDM 2.0, 4.7).
func issuerOf(value any) (string, error) {
	if node, ok := value.(map[string]any); ok {
		value = node["id"]
	}
	s, ok := value.(string)
	if !ok || s == "" {
		return "", fmt.Errorf("/issuer: want a DID, got %s", brief(value))
	}
	return s, nil
}

// hasType looks for a type in a string or an array of strings.
func hasType(value any, want string) bool {
	list, ok := value.([]any)
	return ok && slices.Contains(list, any(want)) || value == want
}

func hasContext(payload map[string]any, url string) bool {
	list, _ := payload["@context"].([]any)
	return slices.Contains(list, any(url))
}

// readSubject brings a credentialSubject into one form, which means the same as JSON and as
// JSON-LD: see normalise.
func readSubject(object map[string]any) (map[string]any, error) {
	normal, err := normalise(object, "/credentialSubject")
	if err != nil {
		return nil, err
	}
	subject, ok := normal.(map[string]any)
	if !ok {
		return nil, errors.New("/credentialSubject: want an object, got a literal")
	}
	if list, ok := subject["type"].([]any); ok && len(list) == 1 {
		subject["type"] = list[0]
	}
	return subject, nil
}

// prefixes of IRIs, compact and full. The allowed contexts also define their terms without
// prefix.
var prefixes = []string{
	"gx:", ContextGaiaX,
	"httpsschema:", "https://schema.org/",
	"cred:", "https://www.w3.org/2018/credentials#",
	"sluice:", ContextSluice + "#",
}

// normalise removes prefixes from terms and types, writes @id and @type without the @, and
// replaces a typed literal by its value. It refuses everything that a JSON-LD processor would
// read differently: contexts, other keywords, and one term in two forms.
func normalise(value any, path string) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		return normaliseObject(value, path)
	case []any:
		list := make([]any, len(value))
		for i, element := range value {
			normal, err := normalise(element, path+"/"+strconv.Itoa(i))
			if err != nil {
				return nil, err
			}
			list[i] = normal
		}
		return list, nil
	}
	return value, nil
}

func normaliseObject(object map[string]any, path string) (any, error) {
	if literal, there := object["@value"]; there {
		return typedLiteral(object, literal, path)
	}
	normal := make(map[string]any, len(object))
	for name, value := range object {
		at := path + "/" + name
		term, err := normalTerm(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		if value, err = normalise(value, at); err != nil {
			return nil, err
		}
		if term == "type" {
			value = normalTypes(value)
		}
		if _, twice := normal[term]; twice {
			return nil, fmt.Errorf("%s: the term is there in another form too", at)
		}
		normal[term] = value
	}
	return normal, nil
}

func normalTerm(name string) (string, error) {
	switch {
	case name == "@id", name == "@type":
		return name[1:], nil
	case strings.HasPrefix(name, "@"):
		return "", errors.New("no such keyword of JSON-LD is read in claims")
	}
	return withoutPrefix(name), nil
}

func normalTypes(value any) any {
	switch value := value.(type) {
	case string:
		return withoutPrefix(value)
	case []any:
		for i, element := range value {
			if s, ok := element.(string); ok {
				value[i] = withoutPrefix(s)
			}
		}
	}
	return value
}

// withoutPrefix removes the prefix of a name, unless the result would be a keyword.
func withoutPrefix(name string) string {
	for _, p := range prefixes {
		if rest, ok := strings.CutPrefix(name, p); ok && rest != "" && rest != "id" && rest != "type" && rest[0] != '@' {
			return rest
		}
	}
	return name
}

// typedLiteral reads {"@value": …, "@type": …}.
func typedLiteral(object map[string]any, literal any, path string) (any, error) {
	for name := range object {
		if name != "@value" && name != "@type" {
			return nil, fmt.Errorf("%s/%s: not allowed beside @value", path, name)
		}
	}
	switch literal.(type) {
	case map[string]any, []any, nil:
		return nil, fmt.Errorf("%s/@value: want a literal, got %s", path, brief(literal))
	}
	return literal, nil
}
