package rdfc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/selfdescription/legacy/rdfc"
)

// suite has the inputs and the outputs of the tests of the W3C, by name.
func suite(t testing.TB) map[string]map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/urdna2015.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]map[string]string{}
	for _, file := range archive.Files {
		name, part := path.Split(file.Name)
		if tests[name] == nil {
			tests[name] = map[string]string{}
		}
		tests[name][part] = string(file.Data)
	}
	return tests
}

func TestW3CSuite(t *testing.T) {
	tests := suite(t)
	if len(tests) != 61 {
		t.Fatalf("%d tests", len(tests))
	}
	for name, test := range tests {
		t.Run(strings.Trim(name, "/"), func(t *testing.T) {
			dataset, err := parse(test["in"])
			if err != nil {
				t.Fatal(err)
			}
			got, err := rdfc.Canonicalize(dataset, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test["out"], got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Names of blank nodes and the order of quads make no difference.
func TestIsomorphicDatasetsAreOneText(t *testing.T) {
	for name, test := range suite(t) {
		t.Run(strings.Trim(name, "/"), func(t *testing.T) {
			dataset, err := parse(test["in"])
			if err != nil {
				t.Fatal(err)
			}
			random := rand.New(rand.NewPCG(1, uint64(len(dataset))))
			for range 5 {
				got, err := rdfc.Canonicalize(disguise(dataset, random), 0)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test["out"], got); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestAStatementThatOccursTwiceCountsOnce(t *testing.T) {
	node, predicate := rdfc.Term{Kind: rdfc.Blank, Value: "a"}, rdfc.Term{Kind: rdfc.IRI, Value: "urn:ex:p"}
	once := rdfc.Quad{Subject: node, Predicate: predicate, Object: rdfc.Term{Kind: rdfc.Literal, Value: "x"}}
	twice := once
	twice.Object.Datatype = "http://www.w3.org/2001/XMLSchema#string" // the same literal
	got, err := rdfc.Canonicalize([]rdfc.Quad{once, twice, once}, 0)
	if want := "_:c14n0 <urn:ex:p> \"x\" .\n"; err != nil || got != want {
		t.Errorf("%v %q, want %q", err, got, want)
	}
}

// Canonical N-Quads (RDFC-1.0, appendix A).
func TestControlCharactersAreEscaped(t *testing.T) {
	got, err := rdfc.Canonicalize([]rdfc.Quad{{
		Subject:   rdfc.Term{Kind: rdfc.IRI, Value: "urn:ex:s"},
		Predicate: rdfc.Term{Kind: rdfc.IRI, Value: "urn:ex:p"},
		Object:    rdfc.Term{Kind: rdfc.Literal, Value: "\x00\b\t\n\v\f\r\x1f \"'\\\x7f\u0080ü\ufffd\ufffe\U0001f600"},
	}}, 0)
	want := `<urn:ex:s> <urn:ex:p> "\u0000\b\t\n\u000B\f\r\u001F \"'\\\u007F` + "\u0080ü\ufffd" + `\uFFFE` + "\U0001f600\" .\n"
	if err != nil || got != want {
		t.Errorf("%v %q, want %q", err, got, want)
	}
}

// disguise gives the blank nodes of a dataset other names, and the quads another order.
func disguise(dataset []rdfc.Quad, random *rand.Rand) []rdfc.Quad {
	names := map[string]string{}
	rename := func(t rdfc.Term) rdfc.Term {
		if t.Kind == rdfc.Blank {
			if names[t.Value] == "" {
				names[t.Value] = fmt.Sprintf("x%d-%d", random.IntN(1000), len(names))
			}
			t.Value = names[t.Value]
		}
		return t
	}
	disguised := slices.Clone(dataset)
	random.Shuffle(len(disguised), func(i, j int) { disguised[i], disguised[j] = disguised[j], disguised[i] })
	for i, q := range disguised {
		disguised[i] = rdfc.Quad{Subject: rename(q.Subject), Predicate: q.Predicate, Object: rename(q.Object), Graph: rename(q.Graph)}
	}
	return disguised
}

func TestSmallGraphsAreOneTextUnderAnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blank := rapid.Custom(func(t *rapid.T) rdfc.Term {
			return rdfc.Term{Kind: rdfc.Blank, Value: rapid.StringMatching(`n[0-5]`).Draw(t, "node")}
		})
		dataset := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rdfc.Quad {
			q := rdfc.Quad{Subject: blank.Draw(t, "subject"), Object: blank.Draw(t, "object")}
			q.Predicate = rdfc.Term{Kind: rdfc.IRI, Value: rapid.SampledFrom([]string{"urn:ex:p", "urn:ex:q"}).Draw(t, "predicate")}
			if rapid.Bool().Draw(t, "named") {
				q.Graph = rdfc.Term{Kind: rdfc.IRI, Value: "urn:ex:g"}
			}
			return q
		}), 0, 8).Draw(t, "dataset")
		want, err := rdfc.Canonicalize(dataset, 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rdfc.Canonicalize(disguise(dataset, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))), 1_000_000)
		if err != nil || got != want {
			t.Fatalf("%v\n%s\nwant\n%s", err, got, want)
		}
	})
}

// clique is a dataset in which every node states the same about every other. The RDFC-1.0 suite
// has one of ten nodes as its negative test 074c.
func clique(nodes int) []rdfc.Quad {
	var dataset []rdfc.Quad
	for i := range nodes {
		for j := range nodes {
			if i != j {
				dataset = append(dataset, rdfc.Quad{
					Subject:   rdfc.Term{Kind: rdfc.Blank, Value: fmt.Sprintf("e%d", i)},
					Predicate: rdfc.Term{Kind: rdfc.IRI, Value: "http://example.com/p"},
					Object:    rdfc.Term{Kind: rdfc.Blank, Value: fmt.Sprintf("e%d", j)},
				})
			}
		}
	}
	return dataset
}

// A dataset that is made to take for ever is refused, and how large it is makes little difference to
// what that costs, counted in allocations.
func TestPoisonIsRefusedAtOnce(t *testing.T) {
	cost := func(nodes int) float64 {
		dataset := clique(nodes)
		return testing.AllocsPerRun(1, func() {
			if _, err := rdfc.Canonicalize(dataset, 0); !errors.Is(err, rdfc.ErrBudget) {
				t.Errorf("clique of %d: error %v, want %v", nodes, err, rdfc.ErrBudget)
			}
		})
	}
	least := cost(7)
	for _, nodes := range []int{10, 20, 50} {
		if took := cost(nodes); took > 5*least {
			t.Errorf("refusing a clique of %d takes %.0f allocations, of 7 %.0f", nodes, took, least)
		}
	}
}

func TestBudgetIsWhatIsAllowed(t *testing.T) {
	if _, err := rdfc.Canonicalize(clique(4), 10); !errors.Is(err, rdfc.ErrBudget) {
		t.Errorf("error %v, want %v", err, rdfc.ErrBudget)
	}
	if _, err := rdfc.Canonicalize(clique(4), 0); err != nil {
		t.Error(err)
	}
	if _, err := rdfc.Canonicalize(clique(6), 10_000_000); err != nil {
		t.Error(err)
	}
}

// Text that is not RDF cannot be written so that it reads as something else.
func TestTermsThatWouldEndTheirQuadAreRefused(t *testing.T) {
	node, predicate := rdfc.Term{Kind: rdfc.Blank, Value: "a"}, rdfc.Term{Kind: rdfc.IRI, Value: "urn:ex:p"}
	for name, q := range map[string]rdfc.Quad{
		"IRI with a bracket":               {Subject: node, Predicate: predicate, Object: rdfc.Term{Kind: rdfc.IRI, Value: "urn:ex:a> .\n<urn:ex:b"}},
		"relative IRI":                     {Subject: node, Predicate: predicate, Object: rdfc.Term{Kind: rdfc.IRI, Value: "a"}},
		"predicate that is a blank node":   {Subject: node, Predicate: node, Object: node},
		"subject that is a literal":        {Subject: rdfc.Term{Kind: rdfc.Literal, Value: "a"}, Predicate: predicate, Object: node},
		"language with a quote":            {Subject: node, Predicate: predicate, Object: rdfc.Term{Kind: rdfc.Literal, Value: "a", Language: `en" .`}},
		"language beside a datatype":       {Subject: node, Predicate: predicate, Object: rdfc.Term{Kind: rdfc.Literal, Value: "a", Language: "en", Datatype: "urn:ex:d"}},
		"relative datatype":                {Subject: node, Predicate: predicate, Object: rdfc.Term{Kind: rdfc.Literal, Value: "a", Datatype: "d"}},
		"text that is not UTF-8":           {Subject: node, Predicate: predicate, Object: rdfc.Term{Kind: rdfc.Literal, Value: "\xff"}},
		"no object":                        {Subject: node, Predicate: predicate},
		"blank node without an identifier": {Subject: rdfc.Term{Kind: rdfc.Blank}, Predicate: predicate, Object: node},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := rdfc.Canonicalize([]rdfc.Quad{q}, 0); err == nil {
				t.Errorf("became %q", got)
			}
		})
	}
}

// FuzzCanonicalize checks that every readable dataset is refused or gives the same result under
// other names, and as its own canonical form.
func FuzzCanonicalize(f *testing.F) {
	for _, test := range suite(f) {
		f.Add(test["in"], uint64(1))
	}
	f.Add(`_:a <urn:ex:p> "\u0008\u0009\u000a\u000b\u000c\u000d\u0022\u005c\u007f\uFFFF" _:g .`, uint64(2))
	f.Fuzz(func(t *testing.T, document string, seed uint64) {
		dataset, err := parse(document)
		if err != nil || len(dataset) > 100 || slices.ContainsFunc(dataset, threeBlanks) {
			t.Skip()
		}
		canonical, err := rdfc.Canonicalize(dataset, 0)
		if err != nil {
			t.Skip()
		}
		other, err := rdfc.Canonicalize(disguise(dataset, rand.New(rand.NewPCG(seed, seed))), 100*rdfc.DefaultBudget)
		if err != nil || other != canonical {
			t.Errorf("%v\n%s\nwant\n%s", err, other, canonical)
		}
		again, err := parse(canonical)
		if err != nil {
			t.Fatal(err)
		}
		if fixed, err := rdfc.Canonicalize(again, 100*rdfc.DefaultBudget); err != nil || fixed != canonical {
			t.Errorf("%v\n%s\nwant\n%s", err, fixed, canonical)
		}
	})
}

// threeBlanks reports whether a quad is one of those that the algorithm cannot distinguish: see
// the package documentation.
func threeBlanks(q rdfc.Quad) bool {
	return q.Subject.Kind == rdfc.Blank && q.Object.Kind == rdfc.Blank && q.Graph.Kind == rdfc.Blank
}

func BenchmarkCanonicalize(b *testing.B) {
	for name, test := range suite(b) {
		if !strings.Contains(name, "evil (1)") && !strings.Contains(name, "multiple subjects") {
			continue
		}
		b.Run(strings.ReplaceAll(strings.Trim(name, "/"), " ", "-"), func(b *testing.B) {
			dataset, err := parse(test["in"])
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rdfc.Canonicalize(dataset, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("refusal", func(b *testing.B) {
		dataset := clique(10)
		for b.Loop() {
			if _, err := rdfc.Canonicalize(dataset, 0); err == nil {
				b.Fatal("accepted")
			}
		}
	})
}
