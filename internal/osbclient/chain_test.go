package osbclient

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestChain: a chain that is too long, has odd names or is no chain counts as none, so that the broker is one like
// any other.
func TestChain(t *testing.T) {
	long := `["` + strings.Repeat(`x","`, maxBehind) + `x"]`
	for metadata, want := range map[string]*Chain{
		``: nil, `null`: nil, `[]`: nil, `{}`: nil, `{"sluice": null}`: nil, `{"sluice": "a"}`: nil,
		`{"sluice": {"hub": "a", "depth": 1}}`:                                             {Hub: "a", Depth: 1},
		`{"sluice": {"hub": "a", "behind": ["b", "c"], "depth": 3, "more": 1}, "x": true}`: {Hub: "a", Behind: []string{"b", "c"}, Depth: 3},
		`{"sluice": {"hub": "", "depth": 1}}`:                                              nil,
		`{"sluice": {"hub": "a"}}`:                                                         nil,
		`{"sluice": {"hub": "a", "depth": -1}}`:                                            nil,
		`{"sluice": {"hub": "a", "depth": 1e9}}`:                                           nil,
		`{"sluice": {"hub": "a b", "depth": 1}}`:                                           nil,
		`{"sluice": {"hub": "` + strings.Repeat("a", 65) + `", "depth": 1}}`:               nil,
		`{"sluice": {"hub": "a", "behind": ["b\u0000"], "depth": 1}}`:                      nil,
		`{"sluice": {"hub": "a", "behind": "b", "depth": 1}}`:                              nil,
		`{"sluice": {"hub": "a", "behind": ` + long + `, "depth": 1}}`:                     nil,
	} {
		got, ok := (&Plan{Metadata: json.RawMessage(metadata)}).Chain()
		if ok != (want != nil) || want != nil && !reflect.DeepEqual(got, *want) {
			t.Errorf("%s: %+v, %t, want %+v", metadata, got, ok, want)
		}
	}
}
