package jsonschema

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// WriteOnly finds what a document calls writeOnly: secrets, which nobody may read again. It reads schemas of any draft,
// also those that cannot be compiled. It rather finds too much than too little. It is not safe for concurrent use.
type WriteOnly struct {
	root any
	// left is the number of schemas that are still looked at. After them, everything counts as writeOnly.
	left int
}

// mostSchemas is the number of schemas of a document that are looked at. References can make more of few.
const mostSchemas = 100_000

// NewWriteOnly returns a search in the schema to which references within its parts refer.
func NewWriteOnly(root any) *WriteOnly { return &WriteOnly{root, mostSchemas} }

// conditional are the keywords whose schemas may apply to the same value as the schema that has them.
var conditional = []string{"allOf", "anyOf", "oneOf", "if", "then", "else"}

// Properties returns the names of the properties of an object that its schema calls writeOnly, sorted.
func (w *WriteOnly) Properties(schema any) []string {
	names := map[string]bool{}
	for name, property := range w.described(schema) {
		if w.Is(property) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Property returns a schema that applies to a property of an object wherever the object's schema describes it; nil if it
// does not. It is for this search only.
func (w *WriteOnly) Property(schema any, name string) any { return w.described(schema)[name] }

// described returns for each property the alternatives that describe it.
func (w *WriteOnly) described(schema any) map[string]any {
	found := map[string]any{}
	for _, part := range w.parts(schema) {
		properties, _ := part["properties"].(map[string]any)
		for name, property := range properties {
			if before, ok := found[name]; ok {
				property = map[string]any{"anyOf": []any{before, property}}
			}
			found[name] = property
		}
	}
	return found
}

// Is reports whether a schema is writeOnly, by itself, by reference or in a part.
func (w *WriteOnly) Is(schema any) bool {
	parts := w.parts(schema)
	return w.left <= 0 || slices.ContainsFunc(parts, func(part map[string]any) bool { return part["writeOnly"] == true })
}

// Anywhere reports whether a schema, or one of a value inside of its values, is writeOnly.
func (w *WriteOnly) Anywhere(schema any) bool { return w.anywhere(schema, map[string]bool{}) }

func (w *WriteOnly) anywhere(node any, followed map[string]bool) bool {
	if w.left--; w.left <= 0 {
		return true
	}
	switch node := node.(type) {
	case map[string]any:
		if node["writeOnly"] == true {
			return true
		}
		if ref, _ := node["$ref"].(string); ref != "" && !followed[ref] {
			followed[ref] = true
			if w.anywhere(w.referred(ref), followed) {
				return true
			}
		}
		for _, inner := range node {
			if w.anywhere(inner, followed) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(node, func(inner any) bool { return w.anywhere(inner, followed) })
	}
	return false
}

// Part returns a schema for any object that says only which properties another schema calls writeOnly, also those inside
// of its properties. It is nil if there are none.
func (w *WriteOnly) Part(schema any) map[string]any {
	part := w.part(schema)
	if part != nil {
		part["type"] = "object"
	}
	return part
}

func (w *WriteOnly) part(schema any) map[string]any {
	part := map[string]any{}
	for name, property := range w.described(schema) {
		object, _ := property.(map[string]any)
		isPlain := object["$ref"] == nil && !slices.ContainsFunc(conditional, func(keyword string) bool { return object[keyword] != nil })
		switch {
		case w.Is(property), !isPlain && w.Anywhere(property): // all of it, since references may go round in circles
			part[name] = map[string]any{"writeOnly": true}
		default:
			if inner := w.part(property); inner != nil {
				part[name] = inner
			}
		}
	}
	if len(part) == 0 {
		return nil
	}
	return map[string]any{"properties": part}
}

// parts returns the schemas that may apply to the same value as one: itself, those that it refers to, and its alternatives.
func (w *WriteOnly) parts(schema any) (parts []map[string]any) {
	followed, next := map[string]bool{}, []any{schema}
	for len(next) > 0 && w.left > 0 {
		object, _ := next[0].(map[string]any)
		next = next[1:]
		w.left--
		if object == nil {
			continue
		}
		parts = append(parts, object)
		if ref, _ := object["$ref"].(string); ref != "" && !followed[ref] {
			followed[ref] = true
			next = append(next, w.referred(ref))
		}
		for _, keyword := range conditional {
			if several, ok := object[keyword].([]any); ok {
				next = append(next, several...)
			} else if object[keyword] != nil {
				next = append(next, object[keyword])
			}
		}
	}
	return parts
}

// referred returns the part of the document that a reference names by a JSON Pointer; nil if there is none.
func (w *WriteOnly) referred(ref string) any {
	fragment, local := strings.CutPrefix(ref, "#")
	pointer, err := url.PathUnescape(fragment)
	if !local || err != nil {
		return nil
	}
	node := w.root
	if pointer == "" {
		return node
	}
	steps := strings.Split(pointer, "/")
	if steps[0] != "" {
		return nil
	}
	for _, step := range steps[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch at := node.(type) {
		case map[string]any:
			node = at[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(at) {
				return nil
			}
			node = at[i]
		default:
			return nil
		}
	}
	return node
}
