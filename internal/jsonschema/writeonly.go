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
	// resources are the document, and the schemas in it that have an identifier: pointers begin at any of them.
	resources []any
	// anchors are the schemas that have a name, by the name. Several may have the same in different resources.
	anchors map[string][]any
	// harmless are the references that lead to nothing that is writeOnly.
	harmless map[string]bool
	// left is the number of schemas that are still looked at. After them, everything counts as writeOnly.
	left int
}

// NewWriteOnly returns a search in the schema to which references within its parts refer.
func NewWriteOnly(root any) *WriteOnly {
	w := &WriteOnly{resources: []any{root}, anchors: map[string][]any{}, harmless: map[string]bool{}, left: mostSchemas}
	w.index(root)
	return w
}

// index notes the resources and anchors in a part of the document. Values that look like schemas count as such.
func (w *WriteOnly) index(node any) {
	switch node := node.(type) {
	case map[string]any:
		for _, keyword := range []string{"$id", "id", "$anchor", "$dynamicAnchor"} {
			name, _ := node[keyword].(string)
			fragment, isAnchor := strings.CutPrefix(name, "#") // of $id, before draft 2019-09
			switch isID := strings.HasSuffix(keyword, "id"); {
			case name == "":
			case !isID:
				w.anchors[name] = append(w.anchors[name], node)
			case isAnchor:
				w.anchors[fragment] = append(w.anchors[fragment], node)
			default:
				w.resources = append(w.resources, node)
			}
		}
		for _, inner := range node {
			w.index(inner)
		}
	case []any:
		for _, inner := range node {
			w.index(inner)
		}
	}
}

// conditional are the keywords whose schemas may apply to the same value as the schema that has them: one, several, or by
// the names of properties.
var conditional = []string{"allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies"}

// lists are the keywords whose schemas apply to the elements of a list.
var lists = []string{"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"}

// references are the keywords that refer to another schema for the same value. Where a dynamic one leads depends on the way
// there, so all schemas of the name count.
var references = []string{"$ref", "$dynamicRef", "$recursiveRef"}

// Properties returns the names of the properties of an object that its schema calls writeOnly, or a value inside of them,
// sorted.
func (w *WriteOnly) Properties(schema any) []string {
	names := map[string]bool{}
	for name, property := range w.described(schema) {
		if w.Anywhere(property) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Others reports whether properties of an object that its schema does not name are writeOnly, or a value inside of them.
func (w *WriteOnly) Others(schema any) bool {
	patterns, others := w.unnamed(schema)
	return w.Anywhere(slices.Concat(patterns, others))
}

// Property returns a schema that applies to a property of an object wherever the object's schema describes it; nil if it
// does not. It is for this search only.
func (w *WriteOnly) Property(schema any, name string) any {
	applying, others := w.unnamed(schema)
	if named, ok := w.described(schema)[name]; ok {
		applying = append(applying, named)
	} else {
		applying = append(applying, others...)
	}
	if len(applying) == 0 {
		return nil
	}
	return map[string]any{"anyOf": applying}
}

// unnamed returns the schemas of properties that an object's schema does not name: patterns are of those that it names, too.
func (w *WriteOnly) unnamed(schema any) (patterns, others []any) {
	for _, part := range w.parts(schema) {
		matching, _ := part["patternProperties"].(map[string]any)
		patterns = slices.AppendSeq(patterns, maps.Values(matching))
		for _, keyword := range []string{"additionalProperties", "unevaluatedProperties"} {
			if other, ok := part[keyword].(map[string]any); ok {
				others = append(others, other)
			}
		}
	}
	return patterns, others
}

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
func (w *WriteOnly) Anywhere(schema any) bool {
	followed := map[string]bool{}
	if w.anywhere(schema, followed) {
		return true
	}
	maps.Copy(w.harmless, followed)
	return false
}

func (w *WriteOnly) anywhere(node any, followed map[string]bool) bool {
	if w.left--; w.left <= 0 {
		return true
	}
	switch node := node.(type) {
	case map[string]any:
		if node["writeOnly"] == true {
			return true
		}
		for _, keyword := range references {
			ref, _ := node[keyword].(string)
			if ref == "" || followed[ref] || w.harmless[ref] {
				continue
			}
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
	named, part := map[string]any{}, map[string]any{}
	patterns, others := w.unnamed(schema)
	anyName := w.Anywhere(patterns)
	for name, property := range w.described(schema) {
		object, _ := property.(map[string]any)
		isPlain := !slices.ContainsFunc(slices.Concat(references, conditional, lists), func(keyword string) bool { return object[keyword] != nil })
		switch {
		case anyName, w.Is(property), !isPlain && w.Anywhere(property): // all of it, since references may go round in circles
			named[name] = map[string]any{"writeOnly": true}
		default:
			if inner := w.part(property); inner != nil {
				named[name] = inner
			}
		}
	}
	if len(named) > 0 {
		part["properties"] = named
	}
	if anyName || w.Anywhere(others) {
		part["additionalProperties"] = map[string]any{"writeOnly": true}
	}
	if len(part) == 0 {
		return nil
	}
	return part
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
		for _, keyword := range references {
			if ref, _ := object[keyword].(string); ref != "" && !followed[ref] {
				followed[ref] = true
				next = append(next, w.referred(ref)...)
			}
		}
		for _, keyword := range conditional {
			switch value := object[keyword].(type) {
			case []any:
				next = append(next, value...)
			case map[string]any:
				if strings.HasPrefix(keyword, "depend") {
					next = slices.AppendSeq(next, maps.Values(value))
				} else {
					next = append(next, value)
				}
			}
		}
	}
	return parts
}

// referred returns the schemas to which a reference may lead; none if it leads nowhere. What another document says is not
// known, so a reference to one counts as writeOnly.
func (w *WriteOnly) referred(ref string) (schemas []any) {
	fragment, local := strings.CutPrefix(ref, "#")
	if !local {
		return []any{map[string]any{"writeOnly": true}}
	}
	pointer, err := url.PathUnescape(fragment)
	switch {
	case err != nil:
		return nil
	case pointer != "" && pointer[0] != '/':
		return w.anchors[pointer]
	}
	for _, root := range w.resources {
		if node := at(root, pointer); node != nil {
			schemas = append(schemas, node)
		}
	}
	return schemas
}

// at returns the part of a document to which a JSON Pointer points; nil if there is none.
func at(node any, pointer string) any {
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch inside := node.(type) {
		case map[string]any:
			node = inside[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(inside) {
				return nil
			}
			node = inside[i]
		default:
			return nil
		}
	}
	return node
}
