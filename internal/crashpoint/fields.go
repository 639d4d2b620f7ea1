//go:build faults

package crashpoint

import (
	"encoding/json"
	"maps"
	"slices"
)

// fieldsOf returns what tells a write from others of the same resource. Of a status these are its
// fields, and the reasons and states anywhere in them; of everything else the fields of the spec,
// and finalizers and annotations if there are any. A body that is not JSON has none.
func fieldsOf(body []byte, status bool) []string {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		return nil
	}
	found := map[string]bool{}
	if status {
		fields, _ := object["status"].(map[string]any)
		collect(fields, found)
		maps.Copy(found, keys(fields))
		delete(found, "conditions") // their reasons say more
		return slices.Sorted(maps.Keys(found))
	}
	for key, value := range object {
		fields, _ := value.(map[string]any)
		switch key {
		case "apiVersion", "kind", "status":
		case "spec":
			maps.Copy(found, keys(fields))
		case "metadata":
			for _, field := range []string{"finalizers", "annotations"} {
				if fields[field] != nil {
					found[field] = true
				}
			}
		default:
			found[key] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func keys(fields map[string]any) map[string]bool {
	names := map[string]bool{}
	for name := range fields {
		names[name] = true
	}
	return names
}

// collect adds the values of reasons and states anywhere below a value.
func collect(value any, found map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if text, ok := inner.(string); ok && (key == "reason" || key == "state") {
				found[text] = true
			}
			collect(inner, found)
		}
	case []any:
		for _, inner := range value {
			collect(inner, found)
		}
	}
}
