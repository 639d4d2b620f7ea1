package catalog

import (
	"encoding/json"
	"maps"
	"slices"
)

// brokersOwn are the members of a plan's metadata that only the broker states: what is proven, where an order can come to,
// and that nobody offers the plan any more.
var brokersOwn = []string{"proven", "selfDescriptions", "sluice", "withdrawn"}

// OwnMetadata returns the metadata that the author of the plan has written, without what only the broker may state.
func (p *Plan) OwnMetadata() map[string]json.RawMessage {
	var own map[string]json.RawMessage
	if p.Plan.Metadata != nil {
		_ = json.Unmarshal(p.Plan.Metadata.Raw, &own) // the definition admits objects only
	}
	maps.DeleteFunc(own, func(name string, _ json.RawMessage) bool { return slices.Contains(brokersOwn, name) })
	return own
}
