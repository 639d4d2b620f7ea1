package shape

import (
	"maps"
	"slices"
	"strings"
)

// maxDepth is the deepest nesting of nodes. The deepest that a shape needs is five.
const maxDepth = 16

// Check returns the differences between subject, a credentialSubject as compact JSON-LD with
// everything nested in it, and the shape of its type. None means that it conforms. The first
// hundred differences are returned, in the order of the attributes.
//
// Numbers may be json.Number or float64. The subject is not changed. Time is linear in its
// size.
func Check(subject map[string]any) []Violation {
	c := &checker{described: map[string]bool{}}
	c.node("", subject, expectation{}, 0)
	return c.violations
}

type checker struct {
	violations []Violation
	// described are the identifiers of nodes that had attributes. In RDF two such nodes are
	// one, with the attributes of both, which a reader of the tree would miss.
	described map[string]bool
}

// expectation is a requirement for the class of a node, from its position.
type expectation struct {
	// classes that the node may have; empty means any.
	classes []string
	// foreign is true if the attribute that leads to the node is not in a table. Then types
	// that are not in a table are accepted.
	foreign bool
}

func (c *checker) refuse(path, rule string, value any) {
	if len(c.violations) == maxViolations {
		return
	}
	v := Violation{Path: path, Rule: rule}
	if value != nil {
		v.Value = show(value)
	}
	c.violations = append(c.violations, v)
}

func (c *checker) node(path string, n map[string]any, want expectation, depth int) {
	if depth > maxDepth {
		c.refuse(path, RuleDepth, nil)
		return
	}
	c.identifier(path, n)
	types, ok := c.types(path, n, want)
	if !ok {
		return
	}
	known := map[string]bool{}
	for _, name := range types {
		for _, a := range classes[name].attributes {
			known[a.term] = true
			if a.key != "" {
				known[a.key] = true
			}
			c.attribute(path, n, a, depth)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n)) {
		switch {
		case key == "id", key == "@id", key == "type", key == "@type":
		case strings.HasPrefix(key, "@"):
			c.refuse(at(path, key), RuleKeyword, n[key])
		case !everyClosedHas(types, key):
			c.refuse(at(path, key), RuleClosed, n[key])
		case !known[key]:
			c.foreign(at(path, key), n[key], depth)
		}
	}
}

// identifier checks the identifier of a node that has attributes or types.
func (c *checker) identifier(path string, n map[string]any) {
	id, key, ok := member(n, "id", "@id")
	if !ok {
		return
	}
	text, isString := id.(string)
	if _, twice := n["@id"]; twice && key == "id" || !isString || !isIdentifier(text) || c.described[text] {
		c.refuse(at(path, key), RuleID, id)
		return
	}
	c.described[text] = true
}

// types returns the classes of a node, without superclasses of others in it. It is false if
// there is no class to check the node against.
func (c *checker) types(path string, n map[string]any, want expectation) ([]string, bool) {
	value, key, ok := member(n, "type", "@type")
	if !ok {
		if len(want.classes) == 1 && classes[want.classes[0]].part {
			return want.classes, true
		}
		if !want.foreign {
			c.refuse(at(path, key), RuleType, nil)
		}
		return nil, want.foreign
	}
	if _, twice := n["@type"]; twice && key == "type" {
		c.refuse(at(path, "@type"), RuleType, n["@type"])
	}
	values, isArray := value.([]any)
	if !isArray {
		values = []any{value}
	}
	var names []string
	fits := len(want.classes) == 0
	for _, v := range values {
		name, found := className(v)
		if !found {
			if !want.foreign {
				c.refuse(at(path, key), RuleType, v)
			}
			continue
		}
		names = append(names, name)
		fits = fits || slices.ContainsFunc(want.classes, func(class string) bool { return Is(name, class) })
	}
	if len(names) > 0 && !fits {
		c.refuse(at(path, key), RuleClass, value)
	}
	if len(values) == 0 {
		c.refuse(at(path, key), RuleType, value)
	}
	special := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool { return other != name && Is(other, name) })
	})
	slices.Sort(special)
	return slices.Compact(special), len(names) > 0 || want.foreign
}

// className returns the class for a value of type, with or without prefix.
func className(value any) (string, bool) {
	text, ok := value.(string)
	if !ok {
		return "", false
	}
	name, prefixed := strings.CutPrefix(text, gaiaX)
	c, ok := classes[name]
	return name, ok && !c.part && (!prefixed || c.namespace == gaiaX)
}

// everyClosedHas reports whether all closed classes among types have the attribute.
func everyClosedHas(types []string, key string) bool {
	return !slices.ContainsFunc(types, func(name string) bool {
		return !classes[name].open && !classes[name].has(key)
	})
}

func (c class) has(key string) bool {
	return slices.ContainsFunc(c.attributes, func(a attribute) bool { return a.term == key || a.key == key && key != "" })
}

// attribute checks how often an attribute occurs and each of its values.
func (c *checker) attribute(path string, n map[string]any, a attribute, depth int) {
	count := 0
	each := func(key string, coercion datatype) {
		value, ok := n[key]
		if !ok {
			return
		}
		values, isArray := value.([]any)
		if !isArray {
			count++
			c.value(at(path, key), value, a, coercion, depth)
			return
		}
		count += len(values)
		for i, v := range values {
			c.value(atIndex(at(path, key), i), v, a, coercion, depth)
		}
	}
	each(a.term, a.coercion)
	if a.key != "" {
		each(a.key, none) // a prefixed name is not a term, so that nothing is known about its values
	}
	switch {
	case count < a.min:
		c.refuse(at(path, a.term), RuleMinCount, nil)
	case a.max != many && count > a.max:
		c.refuse(at(path, a.term), RuleMaxCount, count)
	}
}

func (c *checker) value(path string, value any, a attribute, coercion datatype, depth int) {
	n, isObject := value.(map[string]any)
	if !isObject {
		if text, ok := value.(string); ok && coercion == iri {
			c.reference(path, text, a)
			return
		}
		c.literal(path, value, literalOf(value, coercion), a)
		return
	}
	if _, ok := n["@value"]; ok {
		c.literal(path, value, valueObject(n), a)
		return
	}
	wanted := a.classes()
	if len(wanted) == 0 {
		c.refuse(path, RuleNodeKind, value)
		return
	}
	if id, _, ok := member(n, "id", "@id"); ok && len(n) == 1 && !classes[wanted[0]].part {
		if text, isString := id.(string); isString {
			c.reference(path, text, a)
			return
		}
	}
	c.node(path, n, expectation{classes: wanted}, depth+1)
}

// reference checks a node that is described in another place.
func (c *checker) reference(path, id string, a attribute) {
	switch {
	case len(a.classes()) == 0:
		c.refuse(path, RuleNodeKind, id)
	case !isIdentifier(id):
		c.refuse(path, RuleID, id)
	}
}

func (c *checker) literal(path string, value any, l typedLiteral, a attribute) {
	rule := RuleNodeKind
	for _, alternative := range a.values {
		switch {
		case alternative.datatype == none:
			continue
		case alternative.datatype != l.datatype || !l.datatype.valid(l.text):
			if rule == RuleNodeKind {
				rule = RuleDatatype
			}
		case alternative.fits != nil && !alternative.fits(l.text):
			rule = alternative.rule
		default:
			return
		}
	}
	c.refuse(path, rule, value)
}

// foreign checks nodes of known classes below an attribute that is not in a table.
func (c *checker) foreign(path string, value any, depth int) {
	switch v := value.(type) {
	case map[string]any:
		if _, ok := v["@value"]; !ok {
			c.node(path, v, expectation{foreign: true}, depth+1)
		}
	case []any:
		for i, element := range v {
			if _, nested := element.([]any); nested {
				c.refuse(atIndex(path, i), RuleNodeKind, element)
				continue
			}
			c.foreign(atIndex(path, i), element, depth)
		}
	}
}

// classes returns the classes that a value of the attribute may have.
func (a attribute) classes() []string {
	var names []string
	for _, alternative := range a.values {
		if alternative.class != "" {
			names = append(names, alternative.class)
		}
	}
	return names
}

// member returns the first of the keys that n has; if there is none, key is the first of keys.
func member(n map[string]any, keys ...string) (value any, key string, ok bool) {
	for _, key := range keys {
		if value, ok := n[key]; ok {
			return value, key, true
		}
	}
	return nil, keys[0], false
}

func isIdentifier(id string) bool {
	return isAbsolute(id) || strings.HasPrefix(id, "_:") && len(id) > 2
}
