package shape_test

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/selfdescription/shape"
	"golang.org/x/text/language"
)

func TestCountryKnowsEveryFormOfACode(t *testing.T) {
	for code, want := range map[string]string{
		"DE": "DE", "DEU": "DE", "276": "DE", "DE-HE": "DE", "de": "DE", "deu": "DE", "de-he": "DE",
		"AL": "AL", "8": "AL", "08": "AL", "008": "AL", "US-CA": "US", "GB-ENG": "GB", "FR-75": "FR", "GR": "GR",
	} {
		if got, ok := shape.Country(code); !ok || got != want {
			t.Errorf("Country(%q) = %q, %t, want %q", code, got, ok, want)
		}
	}
	for _, code := range []string{"", "0", "000", "0008", "D", "XX", "EU", "UK", "EL", "XK", "999", "Germany", "DE-", "DE-HESSE", "DEU-HE", "276-HE", "DE-HE-1", "DE HE", " DE", "-", "-DE", "ſe"} {
		if got, ok := shape.Country(code); ok {
			t.Errorf("Country(%q) = %q, want none", code, got)
		}
	}
}

// The table against the one of golang.org/x/text, which also has regions that are no
// countries of ISO 3166-1.
func TestEveryCountryAgreesWithUnicode(t *testing.T) {
	countries := 0
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			code := string([]rune{a, b})
			alpha2, ok := shape.Country(code)
			if !ok {
				continue
			}
			countries++
			region, err := language.ParseRegion(code)
			if err != nil || alpha2 != code {
				t.Fatalf("Country(%q) = %q; %v", code, alpha2, err)
			}
			for _, form := range []string{region.ISO3(), strings.TrimLeft(numeric(region), "0"), numeric(region)} {
				if got, _ := shape.Country(form); got != code {
					t.Errorf("Country(%q) = %q, want %q", form, got, code)
				}
			}
			if union := language.MustParseRegion("EU").Contains(region); shape.InEU(code) && !union {
				t.Errorf("%s is not in the European Union", code)
			}
		}
	}
	if countries != 249 {
		t.Errorf("%d countries, want 249", countries)
	}
}

func numeric(region language.Region) string {
	code := []byte("000")
	for i, n := 2, region.M49(); i >= 0; i, n = i-1, n/10 {
		code[i] += byte(n % 10)
	}
	return string(code)
}

func TestMembersOfTheUnionAndOfTheEconomicArea(t *testing.T) {
	union, area := 0, 0
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			code := string([]rune{a, b})
			if shape.InEU(code) {
				union++
			}
			if shape.InEEA(code) {
				area++
			}
		}
	}
	if union != 27 || area != 30 {
		t.Errorf("%d members of the Union and %d of the Area, want 27 and 30", union, area)
	}
	for _, code := range []string{"GB", "CH", "US", "DEU", "de", "", "T B", "RE"} {
		if shape.InEU(code) || shape.InEEA(code) {
			t.Errorf("%q is in Europe", code)
		}
	}
	if shape.InEU("NO") || !shape.InEEA("NO") || !shape.InEEA("DE") {
		t.Error("Norway is in the Economic Area only")
	}
}
