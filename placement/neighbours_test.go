package placement

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Whatever happens to an inventory, the numbers that it keeps are those of its reservations.
func TestNeighboursAreCountedAsIfOneByOne(t *testing.T) {
	scopes := []v1alpha1.Scope{v1alpha1.ScopePlatform, v1alpha1.ScopeSpace, v1alpha1.ScopeApplication}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(prefix string, n int) string { return fmt.Sprint(prefix, rapid.IntRange(0, n).Draw(t, prefix)) }
		consumer := func() Consumer { return Consumer{Platform: "cf", Space: draw("s", 1), Application: draw("app", 1)} }
		inventory := NewInventory()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			r := Request{ID: draw("si-", 4), Consumer: consumer(), Affinity: []v1alpha1.Affinity{{With: rapid.SampledFrom(scopes).Draw(t, "with"), By: draw("label", 2)}}}
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				c := &Cluster{Name: draw("c", 5), Labels: labels.Set{}}
				for range 2 {
					c.Labels[draw("label", 2)] = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "value")
				}
				inventory.UpsertCluster(c)
			case 1:
				inventory.DeleteCluster(draw("c", 5))
			case 2:
				inventory.observed(r)
			default:
				h := Holding{Instance: r.ID, Consumer: r.Consumer, Held: map[string]Resources{}}
				for range rapid.IntRange(0, 3).Draw(t, "on") {
					h.Held[draw("c", 5)] = Resources{corev1.ResourceCPU: 1}
				}
				inventory.Reserve(h)
			}
			s := inventory.Snapshot()
			uncounted := *s
			uncounted.vicinities = nil
			for _, in := range s.vicinities {
				if got, want := r.neighbours(s, in), r.neighbours(&uncounted, in); !maps.Equal(got, want) {
					t.Fatalf("%+v in %v: %v, and one by one %v", r.Consumer, in, got, want)
				}
			}
		}
	})
}

// A reservation wakes those who wait for the places of others only if these are somewhere else than before.
func TestOnlyNewPlacesOfOthersWakeRequests(t *testing.T) {
	consumer := Consumer{Platform: "cf"}
	inventory, woken := watched(inRegion("a1", "a", 4), inRegion("a2", "a", 4), inRegion("b1", "b", 4))
	hold := func(id string, on ...string) {
		woken()
		h := Holding{Instance: id, Consumer: consumer, Held: map[string]Resources{}}
		for _, cluster := range on {
			h.Held[cluster] = Resources{corev1.ResourceCPU: 1}
		}
		inventory.Reserve(h)
	}
	hold("si-1", "a1")
	for i := range 3 {
		r := Request{ID: fmt.Sprint("si-waits-", i), Consumer: consumer, Resources: Resources{corev1.ResourceCPU: 9}}
		r.Affinity = []v1alpha1.Affinity{{With: v1alpha1.ScopePlatform, By: v1alpha1.LabelRegion}}
		if _, err := inventory.Place(r); err == nil {
			t.Fatal("there is room")
		}
	}
	for _, step := range []struct {
		does  string
		on    []string
		wakes int
	}{
		{"another one comes to the region", []string{"a2"}, 0},
		{"it is in a further region, too", []string{"a2", "b1"}, 3},
		{"it leaves one where others are", []string{"b1"}, 0},
		{"it leaves one where it was alone", nil, 3},
	} {
		hold("si-2", step.on...)
		if got := woken(); len(got) != step.wakes {
			t.Errorf("%s: %v are woken, want %d", step.does, got, step.wakes)
		}
	}
}
