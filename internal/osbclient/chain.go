package osbclient

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// maxBehind is the greatest number of hubs behind a broker, and maxDepth of Sluices in a row, that are believed.
const maxBehind, maxDepth = 64, 1 << 10

// Chain names the Sluices that orders of a plan come to.
type Chain struct {
	// Hub is the id of the hub of the broker itself.
	Hub string `json:"hub"`
	// Behind are the ids of the hubs that it may order from, and those that these may order from, and so on.
	Behind []string `json:"behind,omitempty"`
	// Depth is the greatest number of Sluices in a row, the broker included.
	Depth int32 `json:"depth"`
}

// hubID matches ids of hubs, which are UUIDs.
var hubID = regexp.MustCompile(`^[0-9A-Za-z._~-]{1,64}$`)

// Chain returns what the broker says of where orders of the plan come to. ok is false if it says nothing, because it
// is no Sluice, or nothing that can be believed.
func (p *Plan) Chain() (chain Chain, ok bool) {
	var metadata map[string]json.RawMessage
	if json.Unmarshal(p.Metadata, &metadata) != nil || metadata[v1alpha1.MetadataSluice] == nil {
		return Chain{}, false
	}
	err := strictjson.Decode(bytes.NewReader(metadata[v1alpha1.MetadataSluice]), strictjson.Limits{Bytes: 8 << 10, Depth: 4, Object: true}, &chain)
	if err != nil || !hubID.MatchString(chain.Hub) || len(chain.Behind) > maxBehind || chain.Depth < 1 || chain.Depth > maxDepth ||
		slices.ContainsFunc(chain.Behind, func(id string) bool { return !hubID.MatchString(id) }) {
		return Chain{}, false
	}
	return chain, true
}

// Hubs returns the ids of all hubs that orders may come to, the broker's own first.
func (c Chain) Hubs() []string { return append([]string{c.Hub}, c.Behind...) }
