//go:build faults

package crashpoint

import (
	"encoding/json"
	"maps"
	"slices"
)

// telling are the fields whose values name a step: they hold words of an API, not a user's.
var telling = []string{"reason", "state"}

// boring are the fields that every object sends.
var boring = []string{
	"apiVersion", "kind", "metadata", "spec", "status", "conditions",
}

// fieldsOf returns what tells a write from others of the same resource: the fields below spec and
// status, the finalizers and annotations in its metadata, and the values of reasons and states. A
// body that is not JSON has none.
func fieldsOf(body []byte) []string {
	var object map[string]any
	if json.Unmarshal(body, &object) != nil {
		return nil
	}
	found := map[string]bool{}
	for key, value := range object {
		switch value, _ := value.(map[string]any); key {
		case "spec", "status":
			for field := range value {
				found[field] = true
			}
		case "metadata":
			for _, field := range []string{"finalizers", "annotations", "deletionTimestamp"} {
				if value[field] != nil {
					found[field] = true
				}
			}
		default:
			found[key] = true
		}
	}
	collect(object["status"], found)
	for _, field := range boring {
		delete(found, field)
	}
	return slices.Sorted(maps.Keys(found))
}

// collect adds the values of telling fields anywhere below a value.
func collect(value any, found map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if text, ok := inner.(string); ok && slices.Contains(telling, key) {
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
