package placement

import (
	"fmt"
	"maps"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// An affinity holds by the values of a label, however many of them other instances are on.
func TestAffinityToManyValues(t *testing.T) {
	for _, values := range []int{1, 10, pageRows - 1, pageRows, pageRows + 100} {
		inventory, consumer := NewInventory(), Consumer{Platform: "cf", Space: "s"}
		for i := range values + 2 {
			name := fmt.Sprintf("c%03d", i)
			inventory.UpsertCluster(inRegion(name, "r"+name, 4))
			if i < values { // the last two have none
				inventory.Reserve(Holding{Instance: "si-" + name, Consumer: consumer, Held: map[string]Resources{name: {}}})
			}
		}
		inventory.UpsertCluster(inRegion("none", "", 4))
		for _, apart := range []bool{false, true} {
			r := Request{ID: "si-new", Consumer: consumer, Affinity: []v1alpha1.Affinity{{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: apart}}}
			fit := 0
			for _, v := range Explain(r, inventory.Snapshot()) {
				if together := v.Cluster < fmt.Sprintf("c%03d", values); v.Reason != ReasonNotTogether && v.Reason != ReasonNotApart {
					if fit++; together == apart {
						t.Errorf("%d values, apart is %t: %s fits", values, apart, v.Cluster)
					}
				}
			}
			if want := map[bool]int{false: values, true: 3}[apart]; fit != want {
				t.Errorf("%d values, apart is %t: %d clusters fit, want %d", values, apart, fit, want)
			}
		}
	}
}

// An instance is no neighbour of itself, and hides no other one.
func TestNeighboursAreTheOthers(t *testing.T) {
	inventory, consumer := stock([]*Cluster{inRegion("a1", "a", 4), inRegion("b1", "b", 4)}), Consumer{Platform: "cf", Space: "s"}
	for id, on := range map[string]string{"si-1": "a1", "si-2": "b1", "si-3": "b1"} {
		inventory.Reserve(Holding{Instance: id, Consumer: consumer, Held: map[string]Resources{on: {}}})
	}
	for id, want := range map[string]map[string]int32{"si-1": {"b": 2}, "si-2": {"a": 1, "b": 1}, "si-0": {"a": 1, "b": 2}} {
		if got := (Request{ID: id, Consumer: consumer}).neighbours(inventory.Snapshot(), vicinity{v1alpha1.ScopeSpace, v1alpha1.LabelRegion}); !maps.Equal(got, want) {
			t.Errorf("%s has the neighbours %v, want %v", id, got, want)
		}
	}
}
