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

// WriteOnlyPart returns a schema for any parameters that says only which properties another schema calls writeOnly, also
// those inside of its properties. It is nil if there are none.
func WriteOnlyPart(schema map[string]any) map[string]any {
	part := writeOnlyPart(schema, schema)
	if part != nil {
		part["type"] = "object"
	}
	return part
}

func writeOnlyPart(root, schema map[string]any) map[string]any {
	names, part := map[string]bool{}, map[string]any{}
	addWriteOnly(names, root, schema)
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if object, ok := property.(map[string]any); ok && !names[name] {
			if inner := writeOnlyPart(root, object); inner != nil {
				part[name] = inner
			}
		}
	}
	for name := range names {
		part[name] = map[string]any{"writeOnly": true}
	}
	if len(part) == 0 {
		return nil
	}
	return map[string]any{"properties": part}
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
