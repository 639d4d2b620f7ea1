package catalog

import (
	"maps"
	"slices"
	"strings"
)

// WriteOnly returns the names of the properties that a JSON Schema calls writeOnly, sorted. It finds them whichever draft
// the schema is of, and also if it cannot be compiled: it is better to hide too much.
func WriteOnly(schema map[string]any) []string {
	names := map[string]bool{}
	addWriteOnly(names, schema, schema)
	return slices.Sorted(maps.Keys(names))
}

// addWriteOnly adds the properties of a schema, which is a part of root, that are writeOnly.
func addWriteOnly(names map[string]bool, root, schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if isWriteOnly(root, property) {
			names[name] = true
		}
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "if", "then", "else"} {
		parts, several := schema[keyword].([]any)
		if !several {
			parts = []any{schema[keyword]}
		}
		for _, part := range parts {
			if object, ok := part.(map[string]any); ok {
				addWriteOnly(names, root, object)
			}
		}
	}
}

// mostReferences is the number of references that are followed, one to the next.
const mostReferences = 8

// isWriteOnly reports whether the schema of a property is writeOnly, or refers to one of the same document that is.
func isWriteOnly(root map[string]any, property any) bool {
	for range mostReferences {
		object, _ := property.(map[string]any)
		if object["writeOnly"] == true {
			return true
		}
		ref, _ := object["$ref"].(string)
		path, local := strings.CutPrefix(ref, "#/")
		if !local {
			return false
		}
		property = any(root)
		for _, step := range strings.Split(path, "/") {
			object, _ = property.(map[string]any)
			property = object[step]
		}
	}
	return false
}
