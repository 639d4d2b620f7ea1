package shape_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/selfdescription/shape"
	"pgregory.net/rapid"
)

// Any foreign claim in a closed node, at any depth, is reported.
func TestEveryForeignClaimIsTold(t *testing.T) {
	names := slices.Sorted(maps.Keys(subjectsThatConform))
	names = slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "open") })
	rapid.Check(t, func(rt *rapid.T) {
		subject := decode(t, subjectsThatConform[rapid.SampledFrom(names).Draw(rt, "subject")])
		node := rapid.SampledFrom(nodesOf(subject)).Draw(rt, "node")
		claim := rapid.StringMatching(`(gx:|sluice:|https://w3id\.org/gaia-x/development#)?[a-z]{1,5}Claim`).Draw(rt, "claim")
		node[claim] = rapid.SampledFrom([]any{"L3", 1.0, true, map[string]any{"id": "https://a.example"}, []any{}, nil}).Draw(rt, "value")
		violations := shape.Check(subject)
		if len(violations) != 1 || violations[0].Rule != shape.RuleClosed || !strings.HasSuffix(violations[0].Path, strings.ReplaceAll(claim, "/", "~1")) {
			rt.Fatalf("%s: violations %v", claim, violations)
		}
	})
}

// nodesOf returns the objects described in a subject.
func nodesOf(value any) []map[string]any {
	var nodes []map[string]any
	switch v := value.(type) {
	case map[string]any:
		_, isLiteral := v["@value"]
		_, isReference := v["id"]
		_, isPrefixedReference := v["@id"]
		if !isLiteral && (len(v) > 1 || !isReference && !isPrefixedReference) {
			nodes = append(nodes, v)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			nodes = append(nodes, nodesOf(v[key])...)
		}
	case []any:
		for _, element := range v {
			nodes = append(nodes, nodesOf(element)...)
		}
	}
	return nodes
}

// In JSON-LD a value and an array of only that value are the same.
func TestAnArrayOfOneIsItsValue(t *testing.T) {
	for name, document := range subjectsThatConform {
		t.Run(name, func(t *testing.T) {
			subject := decode(t, document)
			for _, node := range nodesOf(subject) {
				for key, value := range node {
					if _, isArray := value.([]any); !isArray && key != "id" && key != "@id" {
						node[key] = []any{value}
					}
				}
			}
			if violations := shape.Check(subject); len(violations) > 0 {
				t.Errorf("violations %v", violations)
			}
		})
	}
}

// FuzzCheck checks that any subject gives the same result each time and however numbers are
// decoded, without a panic; that it is not changed; and that every violation points into it.
func FuzzCheck(f *testing.F) {
	for _, subject := range subjectsThatConform {
		f.Add([]byte(subject))
	}
	f.Add([]byte(`{"type":["gx:VirtualResource",1,null],"@id":"","license":[[]],"x":[[{}],{"@value":{}}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		var subject, again map[string]any
		if json.Unmarshal(document, &subject) != nil {
			t.Skip()
		}
		decoder := json.NewDecoder(bytes.NewReader(document))
		decoder.UseNumber()
		if err := decoder.Decode(&again); err != nil {
			t.Skip()
		}
		violations := shape.Check(subject)
		var unchanged map[string]any
		if err := json.Unmarshal(document, &unchanged); err != nil || !reflect.DeepEqual(subject, unchanged) {
			t.Fatalf("the subject was changed to %v", subject)
		}
		for _, violation := range violations {
			if violation.Rule == "" || violation.Path != "" && !strings.HasPrefix(violation.Path, "/") || len(violation.Value) > 100 {
				t.Errorf("violation %#v", violation)
			}
		}
		rules := func(violations []shape.Violation) (paths []string) {
			for _, violation := range violations {
				paths = append(paths, violation.Path+violation.Rule)
			}
			return paths
		}
		if other := shape.Check(again); !slices.Equal(rules(violations), rules(other)) {
			t.Errorf("violations %v with float64, %v with json.Number", violations, other)
		}
		if len(violations) > 0 {
			return
		}
		// A conforming subject has a known type.
		if subject["type"] == nil && subject["@type"] == nil {
			t.Errorf("%s conforms without a type", document)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	for _, name := range []string{"compute service offering", "legal person with everything nested", "measurement"} {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			subject := decode(b, subjectsThatConform[name])
			b.ReportAllocs()
			for b.Loop() {
				if violations := shape.Check(subject); len(violations) > 0 {
					b.Fatal(violations)
				}
			}
		})
	}
}
