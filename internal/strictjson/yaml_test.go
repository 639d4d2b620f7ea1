package strictjson_test

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// TestDecodeYAMLSaysWhere: a fault is named by field and line.
func TestDecodeYAMLSaysWhere(t *testing.T) {
	const head = "apiVersion: sluice.dev/v1alpha1\nkind: ServiceOffering\nmetadata: {name: a}\n"
	for _, row := range []struct{ name, document, says string }{
		{"right", head + "spec:\n  id: a\n  plans:\n  - {id: p, resources: {limits: {cpu: 1}}}\n", ""},
		{"an unknown field at the top", head + "typo: 1\n", "line 4: typo: unknown field"},
		{"an unknown field of a plan", head + "spec:\n  plans:\n  - id: p\n  - id: q\n    typo: 1\n", "line 8: spec.plans[1].typo: unknown field"},
		{"an unknown field in one line", head + "spec: {plans: [{resources: {clutsers: 2}}]}\n", "line 4: spec.plans[0].resources.clutsers: unknown field"},
		{"a field twice", head + "spec:\n  id: a\n  id: b\n", `line 6: key "id" already set`},
		{"a text for a number", head + "spec:\n  plans:\n  - resources:\n      clusters: lots\n", "line 7: spec.plans[0].resources.clusters: want a int32, got a string"},
		{"a list for a mapping", head + "spec: []\n", "line 4: spec: want a v1alpha1.ServiceOfferingSpec, got a array"},
		{"an amount that is none", head + "spec: {plans: [{resources: {limits: {cpu: lots}}}]}\n", "quantities must match"},
		{"no YAML", "a: b: c", "mapping values are not allowed"},
		{"JSON", `{"spec": {"typo": 1}}`, "line 1: spec.typo: unknown field"},
		{"an alias", "x: &a {id: p, typo: 1}\nspec: {plans: [*a]}\n", "typo: unknown field"},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := strictjson.DecodeYAML([]byte(row.document), &v1alpha1.ServiceOffering{})
			if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("got %v, want %q", err, row.says)
			}
		})
	}
}
