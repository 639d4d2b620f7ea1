package catalog

import (
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A parameter that was accepted under another plan, or written by hand, is read as far as it goes,
// and refused by its name.
func TestResourcesParametersAreReadByName(t *testing.T) {
	plan := &Plan{Plan: v1alpha1.Plan{Name: "small", Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{
		MaxLatency: &v1alpha1.LatencyBound{From: "stockholm", Milliseconds: 50},
	}}}
	for given, milliseconds := range map[string]int32{"": 50, `{}`: 50, `{"maxLatencyMilliseconds": 20}`: 20, `{"maxLatencyMilliseconds": 80}`: 50, `{"maxLatencyMilliseconds": null}`: 50} {
		chosen, err := plan.ResourcesParameters([]byte(given))
		if err != nil || chosen.MaxLatency.Milliseconds != milliseconds || chosen.MaxLatency.From != "stockholm" {
			t.Errorf("%s: %+v, %v; want %d ms", given, chosen.MaxLatency, err, milliseconds)
		}
	}
	if plan.Resources.MaxLatency.Milliseconds != 50 {
		t.Error("the plan's own limit has changed")
	}
	for i := range resourcesParameters {
		name := resourcesParameters[i].name
		if _, err := plan.ResourcesParameters([]byte(`{"` + name + `": true}`)); err == nil || !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s of another type: %v", name, err)
		}
	}
}
