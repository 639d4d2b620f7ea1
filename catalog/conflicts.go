package catalog

import (
	"fmt"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Collision is an id or a name that two offerings claim.
type Collision struct {
	// Field of the offering that may not have it: id, name or plans.id.
	Field, Value string
	// Message says which offering, or which plan of it, has it.
	Message string
}

// CollisionOf returns the first id or name of an offering that another one has; nil if there is none. An id is unique in
// the whole catalog (OSB 2.17, "Service Offering Object" and "Service Plan Object"). Before is served now, or nil: what it
// shares with the other stays, because neither of them can change its ids any more.
func CollisionOf(spec, other, before *v1alpha1.ServiceOfferingSpec) *Collision {
	taken := func(field, value, format string, args ...any) *Collision {
		return &Collision{field, value, fmt.Sprintf(format, args...)}
	}
	if spec.ID == other.ID {
		return taken("id", spec.ID, "the id %q is taken by service offering %s", spec.ID, other.Name)
	}
	if spec.Name == other.Name {
		return taken("name", spec.Name, "the name %q is taken by service offering %s", spec.Name, other.ID)
	}
	for i := range other.Plans {
		if spec.ID == other.Plans[i].ID && before == nil {
			return taken("id", spec.ID, "the id %q is taken by plan %s of service offering %s", spec.ID, other.Plans[i].Name, other.Name)
		}
	}
	for i := range spec.Plans {
		if spec.Plans[i].ID == other.ID && !before.HasPlan(other.ID) {
			return taken("plans.id", other.ID, "the id %q of plan %s is taken by service offering %s", other.ID, spec.Plans[i].Name, other.Name)
		}
		for k := range other.Plans {
			if spec.Plans[i].ID == other.Plans[k].ID {
				return taken("plans.id", spec.Plans[i].ID, "the id %q of plan %s is taken by plan %s of service offering %s",
					spec.Plans[i].ID, spec.Plans[i].Name, other.Plans[k].Name, other.Name)
			}
		}
	}
	return nil
}

// change returns the reason why an offering must not change from before to after, or "". A
// plan's kind never changes, and a plan in use stays (OSB 2.17, "Catalog Management").
func change(before, after *v1alpha1.ServiceOfferingSpec, uses func() (Uses, error)) (reason, message string, err error) {
	for i := range before.Plans {
		old := &before.Plans[i]
		k := slices.IndexFunc(after.Plans, func(p v1alpha1.Plan) bool { return p.ID == old.ID })
		if k >= 0 {
			if now := &after.Plans[k]; now.Kind != old.Kind {
				return ReasonInvalid, fmt.Sprintf("plan %s changes its kind from %s to %s; give the new plan another id", now.Name, old.Kind, now.Kind), nil
			}
			continue
		}
		counts, err := uses()
		if err != nil {
			return "", "", err
		}
		if n := counts[before.ID][old.ID]; n > 0 {
			return ReasonInUse, fmt.Sprintf("plan %s (%s) cannot be removed: %s", old.Name, old.ID, instances(n)), nil
		}
	}
	return "", "", nil
}

func instances(n int) string {
	if n == 1 {
		return "1 instance uses it"
	}
	return fmt.Sprintf("%d instances use it", n)
}
