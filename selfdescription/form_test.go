package selfdescription

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// Dates have the form dateTimeStamp of XML Schema 1.1-2.
func TestDatesAreReadAsXMLSchemaHasThem(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-20T12:00:00Z":           "2026-11-20T12:00:00Z",
		"2026-11-20T12:00:00.5+01:00":    "2026-11-20T11:00:00.5Z",
		"2026-11-20T12:00:00-14:00":      "2026-11-21T02:00:00Z",
		"2026-11-20T24:00:00Z":           "2026-11-21T00:00:00Z",
		"2026-11-20T24:00:00.000+01:00":  "2026-11-20T23:00:00Z",
		"1969-12-31T23:59:59Z":           "1969-12-31T23:59:59Z",
		"2026-11-20T12:00:12,5Z":         "",
		"2026-11-20T12:00:00+15:00":      "",
		"2026-11-20T12:00:00+14:30":      "",
		"2026-11-20T24:00:01Z":           "",
		"2026-11-20T24:00:00.1Z":         "",
		"2026-11-20T12:00:00":            "",
		"2026-11-20t12:00:00z":           "",
		"2026-02-30T12:00:00Z":           "",
		"2026-11-20T12:00:60Z":           "",
		"2026-11-20":                     "",
		" 2026-11-20T12:00:00Z":          "",
		"2026-11-20T12:00:00Z\n":         "",
		"12026-11-20T12:00:00Z":          "",
		"2026-11-20T12:00:00.Z":          "",
		"2026-11-20T12:00:00.123456789Z": "2026-11-20T12:00:00.123456789Z",
	} {
		got, err := ParseDateTime(text)
		if (err == nil) != (want != "") || err == nil && got.Format(time.RFC3339Nano) != want {
			t.Errorf("%q became %s, %v; want %q", text, got.Format(time.RFC3339Nano), err, want)
		}
	}
}

// A credential is valid from validFrom up to and including validUntil (VCDM 2.0, 4.9), plus the
// tolerated clock difference.
func TestACredentialMayHoldForAMoment(t *testing.T) {
	w := newWorld(t)
	f := w.forge(t, w.issue(t, provider, document(person("https://provider.example/lp"))).Compact)
	now := at.Format(time.RFC3339)
	f.payload["validFrom"], f.payload["validUntil"] = now, now
	delete(f.payload, "iat")
	delete(f.payload, "exp")
	if _, report := w.verifier().Credential(context.Background(), f.compact(t)); !report.OK() {
		t.Errorf("\n%s", &report)
	}
}

// Media types may have the prefix "application/", in either case (RFC 7515, 4.1.9); cty may be
// missing (VC-JOSE-COSE, 3.1.1: "SHOULD"). docs/trust.md lists what is refused.
func TestHeadersAreReadAsTheirSpecificationsHaveThem(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(f *forgery)
		want   string // of the step parse, or of the step algorithm; empty is taken
	}{
		{"typ with application/", func(f *forgery) { f.header["typ"] = "application/vc+jwt" }, ""},
		{"typ in capitals", func(f *forgery) { f.header["typ"] = "VC+JWT" }, ""},
		{"cty with application/", func(f *forgery) { f.header["cty"] = "application/vc" }, ""},
		{"no cty", func(f *forgery) { delete(f.header, "cty") }, ""},
		{"empty cty", func(f *forgery) { f.header["cty"] = "" }, "/cty"},
		{"cty that is no text", func(f *forgery) { f.header["cty"] = 1 }, "/cty"},
		{"text/ before typ", func(f *forgery) { f.header["typ"] = "text/vc+jwt" }, "/typ"},
		{"a relative kid", func(f *forgery) { f.header["kid"] = "#key-1" }, "/kid"},
		{"alg Ed25519", func(f *forgery) { f.header["alg"] = "Ed25519" }, "/alg"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			f := w.forge(t, w.issue(t, provider, document(person("https://provider.example/lp"))).Compact)
			row.change(f)
			_, report := w.verifier().Credential(context.Background(), f.compact(t))
			if row.want == "" {
				if !report.OK() {
					t.Errorf("\n%s", &report)
				}
				return
			}
			step := StepParse
			if row.want == "/alg" {
				step = StepAlgorithm
			}
			refused(t, report, step, row.want)
		})
	}
}

// Only the first few violations of a shape are listed, and the others counted.
func TestViolationsAreListedUpToAFew(t *testing.T) {
	for n, more := range map[int]string{5: "", 6: "and 1 more", 9: "and 4 more"} {
		text := shape.Error(make([]shape.Violation, n)).Error()
		if strings.Count(text, "/credentialSubject") != 5 || strings.Contains(text, "more") != (more != "") || !strings.HasSuffix(text, more) {
			t.Errorf("of %d: %s", n, text)
		}
	}
}

func TestWindow(t *testing.T) {
	for _, row := range []struct {
		from, until time.Time
		want        string
	}{
		{time.Time{}, time.Time{}, "always"},
		{at, time.Time{}, "from " + date(at)},
		{time.Time{}, at, "always until " + date(at)},
		{at, at.Add(time.Hour), "from " + date(at) + " until " + date(at.Add(time.Hour))},
	} {
		if got := window(row.from, row.until); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}

func TestAnIssuerIsAStringThatIsNotEmpty(t *testing.T) {
	for _, row := range []struct {
		value any
		want  string
	}{
		{"did:web:acme.example", "did:web:acme.example"},
		{object{"id": "did:web:acme.example"}, "did:web:acme.example"},
		{"", ""}, {object{"id": ""}, ""}, {object{}, ""}, {1.0, ""}, {nil, ""},
	} {
		if got, err := issuerOf(row.value); got != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%v: %q, %v", row.value, got, err)
		}
	}
}

// A NumericDate is a number of seconds, which may have a fraction (RFC 7519, 2). One generation of issuers counts
// milliseconds.
func TestNumericDates(t *testing.T) {
	for _, row := range []struct {
		cty, number string
		want        string // empty is refused
	}{
		{"vc", "1795176000", "2026-11-20T12:00:00Z"},
		{"vc", "1795176000.25", "2026-11-20T12:00:00.25Z"},
		{"vc", "-1", "1969-12-31T23:59:59Z"},
		{"vc", "253402300799", "9999-12-31T23:59:59Z"},
		{"vc", "253402300800", ""},
		{"vc", "-1e19", ""},
		{"vc", "-1e300", ""},
		{"vc", "1e400", ""},
		{"vc", "-1e400", ""},
		{"vc+ld", "1795176000", "2026-11-20T12:00:00Z"},
		{"vc+ld", "1795176000250", "2026-11-20T12:00:00.25Z"},
		{"vc+ld", "100000000000", "1973-03-03T09:46:40Z"},
		{"vc+ld", "99999999999", "5138-11-16T09:46:39Z"},
	} {
		got, err := (&token{media: media{cty: row.cty}}).number(json.Number(row.number))
		if (err == nil) != (row.want != "") || err == nil && got.Format(time.RFC3339Nano) != row.want {
			t.Errorf("%s in %s became %s, %v; want %q", row.number, row.cty, got.Format(time.RFC3339Nano), err, row.want)
		}
	}
	if got, err := (&token{}).number("1795176000"); err == nil {
		t.Errorf("a string became %s", got)
	}
}

// The zero time means that there is no bound, so no token may state it, nor a time of the same year.
func TestATimeOfTheYear1IsNoBound(t *testing.T) {
	for text, want := range map[string]bool{"0001-01-01T00:00:00Z": false, "0001-12-31T23:59:59Z": false, "0002-01-01T00:00:00Z": true} {
		if got, err := (bound{object{"validFrom": text}, "validFrom", dateTime}).read(); (err == nil) != want || got.IsZero() == want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

// Prefixes are removed from terms and types, never from texts.
func TestAPrefixInATextStays(t *testing.T) {
	w := newWorld(t)
	f := w.forge(t, w.issue(t, provider, document(offering("https://provider.example/k8s"))).Compact)
	f.subject()["name"] = "gx:Kubernetes"
	c, report := w.verifier().Credential(context.Background(), f.compact(t))
	if !report.OK() || c.Claims["name"] != "gx:Kubernetes" {
		t.Errorf("%v\n%s", c, &report)
	}
}

func TestATokenMayBeAsLongAsTheLimit(t *testing.T) {
	compact := newWorld(t).issue(t, provider, document(vat())).Compact
	if _, err := parseToken(compact, len(compact), credentialMedia); err != nil {
		t.Error(err)
	}
	if _, err := parseToken(compact, len(compact)-1, credentialMedia); err == nil {
		t.Error("a longer one is read")
	}
}

// A message quotes the beginning of a long text only.
func TestLongTextsAreCut(t *testing.T) {
	whole := strings.Repeat("x", 200)
	for value, want := range map[string]string{whole: `"` + whole + `"`, whole + "x": `"` + whole + `…"`} {
		if got := brief(value); got != want {
			t.Errorf("%d bytes became %s", len(value), got)
		}
	}
}

func TestReferences(t *testing.T) {
	for _, row := range []struct {
		value any
		want  []string
	}{
		{"https://a.example", []string{"https://a.example"}},
		{object{"id": "https://a.example"}, []string{"https://a.example"}},
		{[]any{"https://a.example", object{"id": "https://b.example"}}, []string{"https://a.example", "https://b.example"}},
		{[]any{"", object{"id": ""}, object{}, 1, nil}, nil},
		{nil, nil},
	} {
		if got := references(row.value); !slices.Equal(got, row.want) {
			t.Errorf("%v refers to %q, want %q", row.value, got, row.want)
		}
	}
}
