package shape

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Deliberate differences between the tables and the published shapes.
var (
	// narrower classes are closed here and open there: ComputeServiceOffering by the shape of
	// its parent (a SHACL validator checks both).
	narrower = []string{"gx:ComputeServiceOffering", "gx:RegistrationNumber"}
	// unknownCountries are in a published list, and not in ISO 3166-1: a made up code,
	// Kosovo's provisional one, and numbers of no country.
	unknownCountries = []string{"XTX", "XKX", "14", "26", "30", "41", "42", "46", "58", "62"}
)

func TestTablesAreThoseOfThePublishedShapes(t *testing.T) {
	shapes := publishedShapes(t)
	for name, class := range gaiaXClasses {
		t.Run(name, func(t *testing.T) {
			published, ok := shapes[gaiaX+name]
			if !ok {
				t.Fatal("there is no such shape")
			}
			if open := published.text("sh:closed") != "true"; open != class.open && !slices.Contains(narrower, gaiaX+name) {
				t.Errorf("open is %t, published %t", class.open, open)
			}
			tables := map[string]attribute{}
			for _, a := range class.attributes {
				tables[a.key] = a
			}
			for _, p := range published["sh:property"] {
				property := p.(resource)
				key := keyOf(property.text("sh:path"))
				a, ok := tables[key]
				if !ok {
					t.Errorf("%s is not in the table", key)
					continue
				}
				delete(tables, key)
				sameAttribute(t, a, property)
			}
			for key := range tables {
				t.Errorf("%s is not in the published shape", key)
			}
		})
	}
}

// A closed parent must not refuse what the table of a class allows, as a validator of the
// published shapes would.
func TestClosedParentsAllowTheAttributesOfTheirKinds(t *testing.T) {
	shapes := publishedShapes(t)
	for name, class := range gaiaXClasses {
		for _, parent := range class.parents {
			published := shapes[gaiaX+parent]
			if published.text("sh:closed") != "true" {
				continue
			}
			allowed := map[string]bool{}
			for _, p := range published["sh:property"] {
				allowed[keyOf(p.(resource).text("sh:path"))] = true
			}
			for _, ignored := range published["sh:ignoredProperties"][0].([]any) {
				allowed[ignored.(string)] = true
			}
			for _, a := range class.attributes {
				if !allowed[a.key] {
					t.Errorf("%s of %s is refused by %s", a.key, name, parent)
				}
			}
		}
	}
}

// keyOf returns the name of a property in the Gaia-X context.
func keyOf(path string) string {
	if rest, ok := strings.CutPrefix(path, "schema:"); ok {
		return "httpsschema:" + rest
	}
	return string(compactDatatype(strings.Trim(path, "<>")))
}

func sameAttribute(t *testing.T, a attribute, property resource) {
	t.Helper()
	if got, want := strconv.Itoa(a.min), property.text("sh:minCount"); got != want && !(a.min == 0 && want == "") {
		t.Errorf("%s: min %s, published %q", a.key, got, want)
	}
	if got, want := strconv.Itoa(a.max), property.text("sh:maxCount"); got != want && !(a.max == many && want == "") {
		t.Errorf("%s: max %s, published %q", a.key, got, want)
	}
	alternatives := []any{property}
	if or, ok := property["sh:or"]; ok {
		alternatives = or[0].([]any)
	}
	var got, want []string
	for _, alternative := range a.values {
		got = append(got, alternative.class+string(alternative.datatype))
	}
	for _, alternative := range alternatives {
		kind := kindOf(alternative.(resource))
		if !slices.Contains(want, kind) { // a list per form of a country's code is one here
			want = append(want, kind)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: values %v, published %v", a.key, got, want)
		return
	}
	for _, alternative := range alternatives {
		sameConstraint(t, a, alternative.(resource))
	}
}

// kindOf returns the class or the datatype of an alternative. Lists have strings.
func kindOf(alternative resource) string {
	switch {
	case alternative["sh:class"] != nil:
		return strings.TrimPrefix(alternative.text("sh:class"), gaiaX)
	case alternative["sh:in"] != nil:
		return string(xsdString)
	}
	return string(compactDatatype(strings.Trim(alternative.text("sh:datatype"), "<>")))
}

// sameConstraint checks that the listed values fit, and that another does not.
func sameConstraint(t *testing.T, a attribute, published resource) {
	t.Helper()
	i := slices.IndexFunc(a.values, func(v alternative) bool { return v.class+string(v.datatype) == kindOf(published) })
	fits := a.values[i].fits
	constrained := false
	if lists := published["sh:in"]; lists != nil {
		constrained = true
		for _, listed := range lists[0].([]any) {
			value := strings.Trim(listed.(string), `"`)
			if fits == nil || !fits(value) && !slices.Contains(unknownCountries, value) {
				t.Errorf("%s: %s is listed and does not fit", a.key, listed)
			}
		}
	}
	if low := published.text("sh:minInclusive"); low != "" {
		constrained = true
		high := published.text("sh:maxInclusive")
		if !fits(low) || !fits(high) || fits(plus(t, low, -1)) || fits(plus(t, high, 1)) {
			t.Errorf("%s is not within %s and %s", a.key, low, high)
		}
	}
	if pattern := published.text("sh:pattern"); pattern != "" {
		constrained = true
		if !fits(strings.TrimPrefix(pattern, "^") + "84") {
			t.Errorf("%s does not fit %s", a.key, pattern)
		}
	}
	if constrained != (fits != nil) {
		t.Errorf("%s: constrained is %t, published %t", a.key, fits != nil, constrained)
	}
	if fits != nil && (fits("not listed") || fits("") || fits("\x00")) {
		t.Errorf("%s: anything fits", a.key)
	}
}

func plus(t *testing.T, number string, more float64) string {
	t.Helper()
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(f + more)
}

// The terms of the tables have the same meaning in the published context.
func TestTermsAreThoseOfThePublishedContext(t *testing.T) {
	raw, err := os.ReadFile("../../test/interop/testdata/gx.context.jsonld")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Context map[string]json.RawMessage `json:"@context"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	for name, class := range gaiaXClasses {
		for _, a := range class.attributes {
			var term struct {
				ID   string   `json:"@id"`
				Type datatype `json:"@type"`
			}
			if err := json.Unmarshal(document.Context[a.term], &term); err != nil {
				t.Errorf("%s of %s: %v", a.term, name, err)
				continue
			}
			if !strings.Contains(term.ID, ":") {
				term.ID = gaiaX + term.ID // @vocab
			}
			if term.ID != a.key || term.Type != a.coercion {
				t.Errorf("%s of %s is %s of type %q, published %s of type %q", a.term, name, a.key, a.coercion, term.ID, term.Type)
			}
		}
	}
	for namespace, prefix := range prefixes {
		var published string
		if err := json.Unmarshal(document.Context[strings.TrimSuffix(prefix, ":")], &published); err != nil || published != namespace {
			t.Errorf("prefix %s is %q, published %q", prefix, namespace, published)
		}
	}
}
