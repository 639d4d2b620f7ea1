package selfdescription

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/strictjson"
	"github.com/sluice-dev/sluice/selfdescription/did"
)

// maxDepth is the deepest nesting of a token's JSON.
const maxDepth = 32

// media is the pair of header parameters that gives a token's type.
type media struct{ typ, cty string }

// Accepted media, by generation: first those that Sluice issues (VC-JOSE-COSE, 3.1), then the
// earlier ones of Gaia-X: ICAM 24.07, and the form without "json".
var (
	credentialMedia   = []media{{"vc+jwt", "vc"}, {"vc+ld+json+jwt", "vc+ld+json"}, {"vc+ld+jwt", "vc+ld"}}
	presentationMedia = []media{{"vp+jwt", "vp"}, {"vp+ld+json+jwt", "vp+ld+json"}, {"vp+ld+jwt", "vp+ld"}}
)

// is compares header parameters by RFC 7515, 4.1.9 and 4.1.10: case does not matter, nor does
// the prefix "application/". cty may be missing.
func (m media) is(typ, cty string) bool {
	same := func(got, want string) bool { return strings.TrimPrefix(strings.ToLower(got), "application/") == want }
	return same(typ, m.typ) && (cty == "" || same(cty, m.cty))
}

// refusedHeaders contain a key, or change what is signed. A key is only ever found through the
// DID of the issuer (RFC 7515, 10.12 and RFC 8725, 3.10).
var refusedHeaders = []string{"jwk", "jku", "x5c", "x5u", "crit", "b64", "zip"}

// token is a JWT whose signature was not checked.
type token struct {
	header, payload map[string]any
	algorithm       string
	// keyID is a DID URL, issuer is its DID.
	keyID, issuer string
	media         media
	// from and until are the tightest bounds that header and payload set.
	from, until time.Time
}

// parseToken reads a token in compact serialisation. It checks neither the algorithm nor the
// signature.
func parseToken(compact string, limit int, accepted []media) (*token, error) {
	if len(compact) > limit {
		return nil, fmt.Errorf("longer than %d bytes", limit)
	}
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("%d parts between dots, want the 3 of a signed JWT", len(parts))
	}
	t := &token{}
	if err := decodePart(parts[0], &t.header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := decodePart(parts[1], &t.payload); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if _, err := decodeBase64(parts[2]); err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	if err := t.readHeader(accepted); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := t.readPayload(); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	return t, nil
}

func decodePart(part string, into *map[string]any) error {
	raw, err := decodeBase64(part)
	if err != nil {
		return err
	}
	return strictjson.Decode(strings.NewReader(string(raw)), strictjson.Limits{Bytes: MaxStatement, Depth: maxDepth, Object: true}, into)
}

// decodeBase64 accepts only one encoding of a content: no padding, no line breaks, no stray
// bits at the end (RFC 4648, 3.5).
func decodeBase64(part string) ([]byte, error) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, errors.New("line break in base64url")
	}
	return base64.RawURLEncoding.Strict().DecodeString(part)
}

func (t *token) readHeader(accepted []media) error {
	for _, name := range refusedHeaders {
		if _, there := t.header[name]; there {
			return fmt.Errorf("/%s: not allowed: keys come from the DID of the issuer", name)
		}
	}
	var err error
	read := func(name string) (s string) {
		if err == nil {
			s, err = text(t.header, name)
		}
		return s
	}
	typ, cty := read("typ"), ""
	if _, there := t.header["cty"]; there {
		cty = read("cty")
	}
	t.algorithm, t.keyID = read("alg"), read("kid")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(accepted, func(m media) bool { return m.is(typ, cty) })
	if i < 0 {
		return fmt.Errorf("/typ and /cty: want %q and %q, got %q and %q", accepted[0].typ, accepted[0].cty, typ, cty)
	}
	t.media = accepted[i]
	if t.issuer, _, err = did.Split(t.keyID); err != nil {
		return fmt.Errorf("/kid: want a DID URL: %w", err)
	}
	return t.isIssuer(t.header, "iss")
}

func (t *token) readPayload() error {
	if slices.Contains(statementMedia, t.media) {
		return t.readStatement()
	}
	if err := plainMembers(t.payload, ""); err != nil {
		return err
	}
	for _, name := range []string{"vc", "vp"} {
		if _, there := t.payload[name]; there {
			return fmt.Errorf("/%s: VCDM 2.0 has no such claim: the payload is the document", name)
		}
	}
	for _, name := range []string{"issuanceDate", "expirationDate"} {
		if _, there := t.payload[name]; there {
			return fmt.Errorf("/%s: of VCDM 1.1: want validFrom and validUntil", name)
		}
	}
	if err := checkContexts(t.payload["@context"]); err != nil {
		return err
	}
	if err := t.isIssuer(t.payload, "iss"); err != nil {
		return err
	}
	return t.readWindow()
}

// plainMembers refuses members that a JSON-LD processor would read differently: keywords, terms
// by their IRI, and a proof beside the signature.
func plainMembers(object map[string]any, path string) error {
	for name := range object {
		switch {
		case name == "@context":
		case strings.HasPrefix(name, "@"):
			return fmt.Errorf("%s/%s: no such keyword of JSON-LD is read here", path, name)
		case withoutPrefix(name) != name, strings.HasPrefix(name, contextStatus):
			return fmt.Errorf("%s/%s: want the term and not its IRI", path, name)
		case name == "proof":
			return fmt.Errorf("%s/proof: not read: the signature is that of the token", path)
		}
	}
	return nil
}

// contextStatus is the prefix of the IRIs of a status list entry's members.
const contextStatus = "https://www.w3.org/ns/credentials/status#"

// isIssuer checks that a member, if present, is the DID of the key.
func (t *token) isIssuer(object map[string]any, name string) error {
	value, there := object[name]
	if !there {
		return nil
	}
	if node, ok := value.(map[string]any); ok { // VCDM 2.0, 4.7: a URL, or an object with an id
		value = node["id"]
	}
	if value != t.issuer {
		return fmt.Errorf("/%s: want the DID of the key, %s, got %v", name, t.issuer, brief(value))
	}
	return nil
}

// readWindow sets the tightest bounds of all that the token states, in any form.
func (t *token) readWindow() error {
	from := []bound{{t.payload, "iat", t.number}, {t.payload, "nbf", t.number}, {t.payload, "validFrom", dateTime}, {t.header, "iat", t.number}, {t.header, "nbf", t.number}}
	until := []bound{{t.payload, "exp", t.number}, {t.payload, "validUntil", dateTime}, {t.header, "exp", t.number}}
	for _, b := range from {
		at, err := b.read()
		if err != nil {
			return err
		}
		if at.After(t.from) {
			t.from = at
		}
	}
	for _, b := range until {
		at, err := b.read()
		if err != nil {
			return err
		}
		if !at.IsZero() && (t.until.IsZero() || at.Before(t.until)) {
			t.until = at
		}
	}
	if !t.until.IsZero() && t.until.Before(t.from) {
		return fmt.Errorf("never valid: from %s until %s", t.from.Format(time.RFC3339), t.until.Format(time.RFC3339))
	}
	return nil
}

// bound is a member that contains a point in time.
type bound struct {
	object map[string]any
	name   string
	parse  func(any) (time.Time, error)
}

// read returns the zero time if the member is missing.
func (b bound) read() (time.Time, error) {
	value, there := b.object[b.name]
	if !there {
		return time.Time{}, nil
	}
	at, err := b.parse(value)
	if err == nil && at.Year() < 2 { // the zero time would mean no bound
		err = errors.New("want a time after the year 1")
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("/%s: %w, got %v", b.name, err, brief(value))
	}
	return at, nil
}

func dateTime(value any) (time.Time, error) {
	s, _ := value.(string)
	return ParseDateTime(s)
}

// dateTimeStamp is the form of an xsd:dateTimeStamp (XML Schema 1.1-2, 3.3.7 and 3.4.28),
// of years from 0001 to 9999.
var dateTimeStamp = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT)(\d\d)(:\d\d:\d\d)(\.\d+)?(Z|[+-](0\d|1[0-3]):[0-5]\d|[+-]14:00)$`)

// ParseDateTime reads an xsd:dateTimeStamp, as the dates of credentials are (VCDM 2.0,
// 4.9). 24:00:00 is the beginning of the next day.
func ParseDateTime(s string) (at time.Time, err error) {
	parts := dateTimeStamp.FindStringSubmatch(s)
	malformed := errors.New("want a date and time with time zone")
	if parts == nil {
		return at, malformed
	}
	days := 0
	if parts[2] == "24" && parts[3] == ":00:00" && strings.Trim(parts[4], ".0") == "" {
		days, s = 1, parts[1]+"00:00:00"+parts[5]
	}
	if at, err = time.Parse(time.RFC3339, s); err != nil {
		return at, malformed
	}
	return at.AddDate(0, 0, days).UTC(), nil
}

// number reads a NumericDate (RFC 7519, 2). Issuers of the generation "vc+ld+jwt" count
// milliseconds. As seconds, numbers of that size would be past the year 5000.
func (t *token) number(value any) (time.Time, error) {
	n, _ := value.(json.Number)
	seconds, err := n.Float64()
	if err != nil {
		return time.Time{}, errors.New("want a number of seconds")
	}
	if t.media.cty == "vc+ld" || t.media.cty == "vp+ld" {
		if seconds >= 1e11 {
			seconds /= 1000
		}
	}
	if math.Abs(seconds) > 253402300799 { // 9999-12-31T23:59:59Z; what is far before 1970 would wrap around
		return time.Time{}, errors.New("want a time of the years 1 to 9999")
	}
	whole, fraction := math.Modf(seconds)
	return time.Unix(int64(whole), int64(fraction*1e9)).UTC(), nil
}

// checkContexts requires the context of VCDM 2.0 first, and then only others of the allowlist,
// by their exact URLs.
func checkContexts(value any) error {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	for i, entry := range list {
		url, ok := entry.(string)
		switch {
		case !ok:
			return fmt.Errorf("/@context/%d: want a URL: contexts of a token's own are not read", i)
		case i == 0 && url != ContextCredentials:
			return fmt.Errorf("/@context/0: want %q, got %v", ContextCredentials, brief(url))
		case !slices.ContainsFunc(contexts, func(c Context) bool { return c.URL == url }):
			return fmt.Errorf("/@context/%d: %v is no known context", i, brief(url))
		case slices.Contains(list[:i], entry):
			return fmt.Errorf("/@context/%d: %q a second time", i, url)
		}
	}
	return nil
}

// text reads a member that must be a string.
func text(object map[string]any, name string) (string, error) {
	s, ok := object[name].(string)
	if !ok || s == "" {
		return "", fmt.Errorf("/%s: want a string, got %v", name, brief(object[name]))
	}
	return s, nil
}

// brief returns a value for an error message: quoted, and cut if long.
func brief(value any) string {
	switch value := value.(type) {
	case nil:
		return "nothing"
	case string:
		if len(value) > 200 {
			value = value[:200] + "…"
		}
		return fmt.Sprintf("%q", value)
	case json.Number:
		return brief(string(value))
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	}
	return fmt.Sprint(value)
}
