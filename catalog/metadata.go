package catalog

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// brokersOwn are the members of a plan's metadata that only the broker states.
var brokersOwn = []string{v1alpha1.MetadataProven, v1alpha1.MetadataSelfDescriptions, v1alpha1.MetadataSluice, v1alpha1.MetadataWithdrawn}

// OwnMetadata returns the metadata that the author of the plan has written, without what only the broker may state.
func (p *Plan) OwnMetadata() map[string]json.RawMessage {
	var own map[string]json.RawMessage
	if p.Plan.Metadata != nil {
		_ = json.Unmarshal(p.Plan.Metadata.Raw, &own) // the definition admits objects only
	}
	maps.DeleteFunc(own, func(name string, _ json.RawMessage) bool { return slices.Contains(brokersOwn, name) })
	return own
}
