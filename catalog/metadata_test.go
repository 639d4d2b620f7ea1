package catalog

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// An author cannot write what only the broker may state.
func TestOwnMetadata(t *testing.T) {
	for written, want := range map[string]string{
		"": "null", `{}`: "{}", `{"bullets": ["a"], "support": {"proven": true}}`: `{"bullets":["a"],"support":{"proven":true}}`,
		`{"proven": {"everyCluster": true}, "selfDescriptions": [1], "sluice": {}, "withdrawn": false, "own": 1}`: `{"own":1}`,
	} {
		p := &Plan{}
		if written != "" {
			p.Plan.Metadata = &runtime.RawExtension{Raw: []byte(written)}
		}
		if got, err := json.Marshal(p.OwnMetadata()); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", written, got, err)
		}
	}
}
