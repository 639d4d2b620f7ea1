package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Build makes a snapshot from the statuses of offerings and, for the schemas of class variables and for what
// brokers say of their plans and for their places, of member clusters, which may be none. Plans read their charts from charts when they need them; nil
// if there are none. It reuses offerings that have not changed since before,
// the last snapshot, which may be nil. Build always returns a usable snapshot; the error names the
// offerings that it had to leave out.
func Build(offerings []v1alpha1.ServiceOffering, clusters []v1alpha1.MemberCluster, charts workload.Charts, before *Snapshot) (*Snapshot, error) {
	if before == nil {
		before = emptySnapshot
	}
	var errs []error
	var built []*Offering
	digests := map[string]string{}
	for i := range offerings {
		accepted, retired := offerings[i].Status.Accepted, offerings[i].DeletionTimestamp != nil
		if accepted == nil {
			continue
		}
		retired = retired || checkProvided(accepted) != nil // accepted by an earlier version
		known := knownOf(accepted, clusters)
		sum, err := digest(accepted, known, retired)
		if err != nil {
			errs = append(errs, fmt.Errorf("service offering %s: %w", accepted.Name, err))
			continue
		}
		if _, taken := digests[accepted.ID]; taken {
			errs = append(errs, fmt.Errorf("service offering %s: its id %q is served already", accepted.Name, accepted.ID))
			continue
		}
		offering := before.byID[accepted.ID]
		if before.digests[accepted.ID] != sum {
			if offering, err = newOffering(accepted, known, charts, retired); err != nil && !retired {
				offering, err = newOffering(accepted, known, charts, true) // accepted by an earlier version
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("service offering %s: %w", accepted.Name, err))
				continue
			}
		}
		digests[accepted.ID] = sum
		built = append(built, offering)
	}
	snapshot := newSnapshot(built, digests)
	if len(clusters) > 0 {
		snapshot.locate(clusters)
	}
	return snapshot, errors.Join(errs...)
}

// known holds what the member clusters say of an offering's plans.
type known struct {
	Variables variableSchemas
	Passed    map[string]*passedOn `json:",omitempty"`
}

func knownOf(spec *v1alpha1.ServiceOfferingSpec, clusters []v1alpha1.MemberCluster) known {
	return known{schemasOf(spec, clusters), passedOnOf(spec, clusters)}
}

// newOffering compiles a copy of an offering's spec, with what is known of its plans.
func newOffering(spec *v1alpha1.ServiceOfferingSpec, is known, charts workload.Charts, retired bool) (*Offering, error) {
	offering := &Offering{ServiceOfferingSpec: spec.DeepCopy(), Retired: retired}
	for _, p := range offering.ServiceOfferingSpec.Plans {
		plan := newPlan(p, offering, charts)
		plan.Digest = v1alpha1.DigestOf(p)
		plan.confine(spec.Provider)
		is.Passed[p.ID].addTo(plan)
		if err := plan.compileSchemas(is.Variables[p.ID]); err != nil {
			return nil, err
		}
		offering.Plans = append(offering.Plans, plan)
	}
	return offering, nil
}

// newPlan returns a plan without its schemas. A workload plan that does not say where it runs runs on
// any one cluster.
func newPlan(p v1alpha1.Plan, offering *Offering, charts workload.Charts) *Plan {
	plan := &Plan{Plan: p, Offering: offering}
	if p.Workload != nil {
		plan.footprints, plan.charts = newFootprints(), charts
		if p.Resources == nil {
			plan.Resources = &v1alpha1.ResourcesPlan{Clusters: 1}
		}
	}
	return plan
}

func digest(spec *v1alpha1.ServiceOfferingSpec, is known, retired bool) (string, error) {
	document, err := json.Marshal(struct {
		Spec *v1alpha1.ServiceOfferingSpec
		known
		Retired bool
	}{spec, is, retired})
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	sum := sha256.Sum256(document)
	return string(sum[:]), nil
}

// revision returns the digest of all digests.
func revision(digests map[string]string) string {
	h := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(digests)) {
		h.Write([]byte(digests[id]))
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
