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

// DefaultBudget is enough for every credential, and for the whole W3C test suite except the
// datasets designed to take too much. It is used up in a few milliseconds.
const DefaultBudget = 20_000

// ErrBudget means that distinguishing the blank nodes of a dataset takes more work than the
// budget allows.
var ErrBudget = errors.New("canonicalization takes too much work")

// Canonicalize returns the canonical N-Quads of a dataset; for no quads it is empty. Duplicate
// quads count once. Budget limits the work on blank nodes with equal hashes, counted in paths
// between them; 0 means DefaultBudget. All other work grows only with the size of the dataset.
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

// read checks the quads, drops duplicates, and records the quads of each blank node.
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

// blanks returns the identifiers of the blank nodes of a quad.
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

// nameAlike issues canonical identifiers to blank nodes with the same first-degree hash.
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

// hashFirstDegree hashes the quads of a blank node without the names of other blank nodes
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

// spend subtracts work from the budget.
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

// issuer names blank nodes in the order of its calls (RDFC-1.0, 4.5).
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

// issue returns the name of a blank node: the same on each call.
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
