package rdfc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// DefaultBudget is enough for everything in the test suite of the W3C that is not
// made to be too much, and for every credential; it is used up in a few milliseconds.
const DefaultBudget = 20_000

// ErrBudget says that telling the blank nodes of a dataset apart takes more work than
// was allowed.
var ErrBudget = errors.New("canonicalization takes too much work")

// Canonicalize returns the canonical N-Quads of a dataset; that of no quads is empty.
// Quads that occur twice count once. Budget bounds the work on blank nodes that look
// alike, in paths between them that are looked at; 0 means DefaultBudget. What else
// there is to do grows with the size of the dataset alone.
//
// It fails with ErrBudget, and if a quad is not RDF.
func Canonicalize(dataset []Quad, budget int) (string, error) {
	if budget == 0 {
		budget = DefaultBudget
	}
	c := &canonicalization{
		quads:       map[string][]Quad{},
		firstDegree: map[string]string{},
		canonical:   newIssuer("c14n"),
		budget:      budget,
	}
	dataset, err := c.read(dataset)
	if err != nil {
		return "", err
	}
	if err := c.name(); err != nil {
		return "", err
	}
	lines := make([]string, len(dataset))
	for i, q := range dataset {
		var line strings.Builder
		q.write(&line, c.canonical.issue)
		lines[i] = line.String()
	}
	slices.Sort(lines) // bytes of UTF-8 are in code point order
	return strings.Join(lines, ""), nil
}

// canonicalization is the state of the algorithm (RDFC-1.0, 4.2).
type canonicalization struct {
	// quads of each blank node.
	quads map[string][]Quad
	// firstDegree has the hash of each blank node's quads.
	firstDegree map[string]string
	canonical   *issuer
	budget      int
}

// read checks the quads, drops those that occur twice, and notes whose they are.
func (c *canonicalization) read(dataset []Quad) ([]Quad, error) {
	seen := make(map[Quad]bool, len(dataset))
	var unique []Quad
	for _, q := range dataset {
		if err := q.check(); err != nil {
			return nil, err
		}
		if q.Object.Datatype == xsdString || q.Object.Language != "" {
			q.Object.Datatype = ""
		}
		if seen[q] {
			continue
		}
		seen[q] = true
		unique = append(unique, q)
		for identifier := range q.blanks() {
			c.quads[identifier] = append(c.quads[identifier], q)
		}
	}
	return unique, nil
}

// blanks are the identifiers of the blank nodes of a quad.
func (q Quad) blanks() map[string]bool {
	identifiers := map[string]bool{}
	for _, t := range [...]Term{q.Subject, q.Object, q.Graph} {
		if t.Kind == Blank {
			identifiers[t.Value] = true
		}
	}
	return identifiers
}

// name issues canonical identifiers to all blank nodes (RDFC-1.0, 4.4.3, steps 3 to 5).
func (c *canonicalization) name() error {
	alike := map[string][]string{}
	for _, identifier := range slices.Sorted(maps.Keys(c.quads)) {
		hash := c.hashFirstDegree(identifier)
		c.firstDegree[identifier] = hash
		alike[hash] = append(alike[hash], identifier)
	}
	hashes := slices.Sorted(maps.Keys(alike))
	for _, hash := range hashes {
		if identifiers := alike[hash]; len(identifiers) == 1 {
			c.canonical.issue(identifiers[0])
		}
	}
	for _, hash := range hashes {
		if len(alike[hash]) == 1 {
			continue
		}
		if err := c.nameAlike(alike[hash]); err != nil {
			return fmt.Errorf("%d blank nodes that look alike: %w", len(alike[hash]), err)
		}
	}
	return nil
}

// nameAlike issues canonical identifiers to blank nodes whose own quads are the same.
func (c *canonicalization) nameAlike(identifiers []string) error {
	var results []path
	for _, identifier := range identifiers {
		if c.canonical.has(identifier) {
			continue
		}
		temporary := newIssuer("b")
		temporary.issue(identifier)
		result, err := c.hashNDegree(identifier, temporary)
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	slices.SortStableFunc(results, func(a, b path) int { return strings.Compare(a.text, b.text) })
	for _, result := range results {
		for _, identifier := range result.issuer.order {
			c.canonical.issue(identifier)
		}
	}
	return nil
}

// hashFirstDegree hashes the quads of a blank node without the names of others
// (RDFC-1.0, 4.6).
func (c *canonicalization) hashFirstDegree(identifier string) string {
	lines := make([]string, len(c.quads[identifier]))
	for i, q := range c.quads[identifier] {
		var line strings.Builder
		q.write(&line, func(other string) string {
			if other == identifier {
				return "a"
			}
			return "z"
		})
		lines[i] = line.String()
	}
	slices.Sort(lines)
	return hash(strings.Join(lines, ""))
}

// spend counts work.
func (c *canonicalization) spend(steps int) error {
	if c.budget -= steps; c.budget < 0 {
		return ErrBudget
	}
	return nil
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// issuer names blank nodes in the order in which they are met (RDFC-1.0, 4.5).
type issuer struct {
	prefix string
	issued map[string]string
	order  []string
}

func newIssuer(prefix string) *issuer { return &issuer{prefix: prefix, issued: map[string]string{}} }

func (i *issuer) has(identifier string) bool {
	_, ok := i.issued[identifier]
	return ok
}

// issue returns the name of a blank node, the same each time.
func (i *issuer) issue(identifier string) string {
	name, ok := i.issued[identifier]
	if !ok {
		name = fmt.Sprintf("%s%d", i.prefix, len(i.order))
		i.issued[identifier] = name
		i.order = append(i.order, identifier)
	}
	return name
}

func (i *issuer) clone() *issuer {
	return &issuer{prefix: i.prefix, issued: maps.Clone(i.issued), order: slices.Clone(i.order)}
}
