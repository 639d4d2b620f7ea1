package rdfc

import (
	"maps"
	"slices"
	"strings"
)

// path is a way through blank nodes, as a text or its hash, and the names given to them on it.
type path struct {
	text   string
	issuer *issuer
}

// hashNDegree hashes a blank node by its neighbours, and those by theirs, in the order that
// gives the least path (RDFC-1.0, 4.8).
func (c *canonicalization) hashNDegree(identifier string, names *issuer) (path, error) {
	related, err := c.related(identifier, names)
	if err != nil {
		return path{}, err
	}
	var data strings.Builder
	for _, hash := range slices.Sorted(maps.Keys(related)) {
		data.WriteString(hash)
		chosen, err := c.shortest(related[hash], names)
		if err != nil {
			return path{}, err
		}
		data.WriteString(chosen.text)
		names = chosen.issuer
	}
	return path{text: hash(data.String()), issuer: names}, nil
}

// related returns the blank nodes that a blank node shares quads with, by the hash of their
// connection.
func (c *canonicalization) related(identifier string, names *issuer) (map[string][]string, error) {
	related := map[string][]string{}
	for _, q := range c.quads[identifier] {
		for i, t := range [...]Term{q.Subject, q.Object, q.Graph} {
			if t.Kind != Blank || t.Value == identifier {
				continue
			}
			if err := c.spend(1); err != nil {
				return nil, err
			}
			hash := c.hashRelated(t.Value, q, names, "sog"[i:i+1])
			related[hash] = append(related[hash], t.Value)
		}
	}
	return related, nil
}

// hashRelated hashes the connection to a blank node (RDFC-1.0, 4.7).
func (c *canonicalization) hashRelated(related string, q Quad, names *issuer, position string) string {
	input := position
	if position != "g" {
		input += "<" + q.Predicate.Value + ">"
	}
	switch {
	case c.canonical.has(related):
		input += "_:" + c.canonical.issue(related)
	case names.has(related):
		input += "_:" + names.issue(related)
	default:
		input += c.firstDegree[related]
	}
	return hash(input)
}

// shortest returns the least of the paths through blank nodes in any order.
func (c *canonicalization) shortest(identifiers []string, names *issuer) (path, error) {
	var chosen path
	for order := range permutations(identifiers) {
		// A permutation also costs the names that are copied for it.
		if err := c.spend(1 + len(order) + len(names.order)/8); err != nil {
			return path{}, err
		}
		candidate, err := c.walk(order, names.clone(), chosen.text)
		if err != nil {
			return path{}, err
		}
		if candidate.issuer != nil && (chosen.issuer == nil || candidate.text < chosen.text) {
			chosen = candidate
		}
	}
	return chosen, nil
}

// walk returns the path through blank nodes in an order. Its issuer is nil if the path cannot
// be less than best.
func (c *canonicalization) walk(order []string, names *issuer, best string) (path, error) {
	var text strings.Builder
	worse := func() bool {
		return best != "" && text.Len() >= len(best) && text.String() > best
	}
	var unnamed []string
	for _, related := range order {
		if c.canonical.has(related) {
			text.WriteString("_:" + c.canonical.issue(related))
		} else {
			if !names.has(related) {
				unnamed = append(unnamed, related)
			}
			text.WriteString("_:" + names.issue(related))
		}
		if worse() {
			return path{}, nil
		}
	}
	for _, related := range unnamed {
		result, err := c.hashNDegree(related, names)
		if err != nil {
			return path{}, err
		}
		text.WriteString("_:" + names.issue(related) + "<" + result.text + ">")
		names = result.issuer
		if worse() {
			return path{}, nil
		}
	}
	return path{text: text.String(), issuer: names}, nil
}

// permutations yields all permutations of a list, which is not changed. Each is valid until the
// next.
func permutations(list []string) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		order := slices.Clone(list)
		var rest func(from int) bool
		rest = func(from int) bool {
			if from >= len(order)-1 {
				return yield(order)
			}
			for i := from; i < len(order); i++ {
				order[from], order[i] = order[i], order[from]
				if !rest(from + 1) {
					return false
				}
				order[from], order[i] = order[i], order[from]
			}
			return true
		}
		rest(0)
	}
}
