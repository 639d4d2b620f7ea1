package legacy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// If any member is changed, the document is refused, unless the report lists the member as
// unsigned.
func TestEveryMemberIsSignedOrReportedAsUnsigned(t *testing.T) {
	all, importer := vectors(t)
	for _, vector := range all {
		if !strings.HasSuffix(vector.Name, "ES256") {
			continue
		}
		t.Run(vector.Name, func(t *testing.T) {
			_, report := importer.Import(t.Context(), string(vector.Document))
			var document any
			if err := json.Unmarshal(vector.Document, &document); err != nil {
				t.Fatal(err)
			}
			for _, pointer := range leaves(document, "") {
				unsigned := slices.ContainsFunc(report.Unsigned, func(p string) bool { return pointer == p || strings.HasPrefix(pointer, p+"/") })
				for name, text := range changes(t, document, pointer) {
					credential, report := importer.Import(t.Context(), text)
					if credential != nil && !unsigned {
						t.Errorf("%s %s: accepted", pointer, name)
					}
					if credential == nil && report.OK() {
						t.Errorf("%s %s: no credential, and no reason", pointer, name)
					}
				}
			}
		})
	}
}

// leaves returns JSON pointers to all values that are not objects or arrays.
func leaves(value any, path string) []string {
	var all []string
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			all = append(all, leaves(value[name], path+"/"+name)...)
		}
	case []any:
		for i, element := range value {
			all = append(all, leaves(element, fmt.Sprintf("%s/%d", path, i))...)
		}
	default:
		all = append(all, path)
	}
	return all
}

// changes returns documents that differ at a pointer.
func changes(t *testing.T, document any, pointer string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for name, change := range map[string]func(any) any{
		"with another value": func(value any) any {
			switch value := value.(type) {
			case string:
				if strings.HasSuffix(value, "00:00:00Z") {
					return strings.Replace(value, "00:00:00Z", "00:00:01Z", 1)
				}
				if strings.HasSuffix(pointer, "/jws") {
					return value[:len(value)-4] + strings.Repeat(string(value[0]), 4)
				}
				if len(value) == 64 {
					return strings.Repeat("0", 64)
				}
				return value + "x"
			case float64:
				return value + 1
			}
			return value
		},
		"removed":   func(any) any { return nil },
		"in a list": func(value any) any { return []any{value, "https://rival.example/x"} },
	} {
		raw, err := json.Marshal(edit(document, strings.Split(pointer, "/")[1:], change))
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(raw)
	}
	return texts
}

// edit copies a document with a change at a path; a member that becomes nil is removed.
func edit(value any, path []string, change func(any) any) any {
	if len(path) == 0 {
		return change(value)
	}
	switch value := value.(type) {
	case map[string]any:
		copied := maps.Clone(value)
		if copied[path[0]] = edit(value[path[0]], path[1:], change); copied[path[0]] == nil {
			delete(copied, path[0])
		}
		return copied
	case []any:
		copied := slices.Clone(value)
		for i := range copied {
			if fmt.Sprint(i) == path[0] {
				copied[i] = edit(value[i], path[1:], change)
				if copied[i] == nil {
					return slices.Delete(copied, i, i+1)
				}
			}
		}
		return copied
	}
	return value
}
