package placement

import (
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A class belongs to the policy that declares it first, by name.
func TestDeclaredBefore(t *testing.T) {
	policy := func(name string, classes ...string) v1alpha1.PlacementPolicy {
		p := v1alpha1.PlacementPolicy{}
		p.Name = name
		for _, class := range classes {
			p.Spec.PriorityClasses = append(p.Spec.PriorityClasses, v1alpha1.PriorityClass{Name: class})
		}
		return p
	}
	all := []v1alpha1.PlacementPolicy{policy("c", "iron", "gold"), policy("a", "gold", "silver"), policy("b", "tin", "silver")}
	policies := CompilePolicies(all)
	for i, want := range [][2]string{{"gold", "a"}, {"", ""}, {"silver", "a"}} {
		if class, first := policies.DeclaredBefore(&all[i]); class != want[0] || first != want[1] {
			t.Errorf("policy %s: class %q is declared by policy %q, want %q", all[i].Name, class, first, want)
		}
	}
}
