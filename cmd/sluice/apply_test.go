package main

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestDocuments(t *testing.T) {
	const policy = "apiVersion: sluice.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: p}\nspec: {}\n"
	for _, c := range []struct{ name, data, want string }{
		{"none", "", "no PlacementPolicy in it"},
		{"comments only", "# later\n---\n# and later\n", "no PlacementPolicy in it"},
		{"another kind", strings.Replace(policy, "PlacementPolicy", "ServiceOffering", 1) + "description: unknown here\n",
			`kind "ServiceOffering" in apiVersion "sluice.dev/v1alpha1": want kind "PlacementPolicy" in apiVersion "sluice.dev/v1alpha1"`},
		{"no kind", "metadata: {name: p}\n", `kind "" in apiVersion "": want kind "PlacementPolicy" in apiVersion "sluice.dev/v1alpha1"`},
		{"an unknown field", policy + "status: {}\nprefers: []\n", "line 6: prefers: unknown field"},
		{"a key twice", policy + "kind: PlacementPolicy\n", `line 5: key "kind" already set in map`},
		{"no object", "3\n", "got a number"},
		{"the second one", policy + "---\nkind: Pod\napiVersion: v1\n", `document 2: kind "Pod" in apiVersion "v1": want`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if objects, err := decodeDocuments[v1alpha1.PlacementPolicy]([]byte(c.data), "PlacementPolicy"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d objects, %v; want %q", len(objects), err, c.want)
			}
		})
	}
	if objects, err := decodeDocuments[v1alpha1.PlacementPolicy]([]byte("---\n"+policy+"---\n"+policy), "PlacementPolicy"); err != nil || len(objects) != 2 {
		t.Errorf("two documents: %d objects, %v", len(objects), err)
	}
}
