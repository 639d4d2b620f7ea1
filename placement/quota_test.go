package placement

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Whatever was reserved before or after a quota came into force, and however often: no consumer
// holds more than the quota, and each may hold all of it.
func TestAQuotaBindsHoweverItCameIntoForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 10
		inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 1000}}})
		quota := Policies{{Name: "small", Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: Resources{"cpu": limit}.List()}}}
		consumers := []Consumer{{Platform: "cf", Space: "one"}, {Platform: "cf", Space: "two"}, {Platform: "k8s", Space: "one"}}
		held := map[string]int64{}
		of := map[string]Consumer{}
		bound := false
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				bound = rapid.Bool().Draw(t, "in force")
				if bound {
					inventory.SetPolicies(quota)
				} else {
					inventory.SetPolicies(nil)
				}
			case 1:
				id := rapid.SampledFrom([]string{"si-a", "si-b", "si-c", "si-d"}).Draw(t, "released")
				inventory.Release(id)
				delete(held, id)
			default:
				id := rapid.SampledFrom([]string{"si-a", "si-b", "si-c", "si-d"}).Draw(t, "placed")
				consumer, known := of[id]
				if !known {
					consumer = rapid.SampledFrom(consumers).Draw(t, "consumer")
					of[id] = consumer
				}
				cpu := rapid.Int64Range(1, 6).Draw(t, "cpu")
				r := inventory.Snapshot().Govern(Request{ID: id, Resources: Resources{"cpu": cpu}}, consumer)
				if held[id] > 0 {
					r.Current = []string{"eu"}
				}
				others := int64(0)
				for other, has := range held {
					if other != id && of[other] == consumer {
						others += has
					}
				}
				_, err := inventory.Place(r)
				if fits := !bound || others+cpu <= limit; fits != (err == nil) {
					t.Fatalf("%d are held, %d asked for, in force is %t: %v", others, cpu, bound, err)
				}
				if err == nil {
					held[id] = max(held[id], cpu) // a smaller one is reserved beside the larger until it is delivered
				}
			}
		}
	})
}
