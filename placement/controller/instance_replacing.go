package controller

import (
	"bytes"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/workload"
)

// A part of a workload that changes its cluster, a component or replicas, is replaced without a gap where
// that is possible, in the steps of v1alpha1.ReplacementStep. Each is on the hub before it begins.

// replaces returns the step with which a decision is delivered in that way: parts change their clusters, and
// are otherwise as before. It is the first, or that of the present decision if a new leader decides the same: what has
// left a cluster since is not there any more. Otherwise it returns none.
func (s *scope) replaces(decided *v1alpha1.Decision) v1alpha1.ReplacementStep {
	before := s.Status.Delivered
	if before == nil || decided.Workload == nil || before.Decision.Workload == nil {
		return ""
	}
	if s.movesReplicas(decided, &before.Decision) ||
		bytes.Equal(before.State.Raw(), s.wanted().Raw()) && movesComponents(decided, &before.Decision) {
		if isRepeated(decided, s.Status.Decision) {
			return s.Status.Decision.Replacement
		}
		return v1alpha1.ReplacementStart
	}
	return ""
}

// isRepeated reports whether a decision has the same parts on the same clusters as the present one.
func isRepeated(decided, present *v1alpha1.Decision) bool {
	return present != nil && present.Generation == decided.Generation && equality.Semantic.DeepEqual(present.Workload, decided.Workload) &&
		slices.EqualFunc(present.Placements, decided.Placements, func(a, b v1alpha1.Placement) bool {
			return a.Cluster == b.Cluster && a.Replicas == b.Replicas && slices.Equal(a.Components, b.Components)
		})
}

// movesReplicas reports whether some clusters get replicas and others lose some, each of which takes as
// much as before.
func (s *scope) movesReplicas(decided, before *v1alpha1.Decision) bool {
	gets, loses := false, false
	for i := range decided.Placements {
		now, then := decided.Placements[i].Replicas, placementOn(before, decided.Placements[i].Cluster).Replicas
		gets, loses = gets || now > then, loses || now < then
	}
	return gets && loses && equality.Semantic.DeepEqual(decided.Workload, before.Workload) &&
		workload.SameParameters(decided.Workload, s.Status.Delivered.State.Raw(), s.wanted().Raw())
}

// movesComponents reports whether components change their clusters. There must be room for them on both
// clusters, so no cluster may both get a component and lose one.
func movesComponents(decided, before *v1alpha1.Decision) bool {
	changes := false
	for i := range before.Placements {
		former := &before.Placements[i]
		p := placementOn(decided, former.Cluster)
		gets := slices.ContainsFunc(p.Components, func(c string) bool { return !slices.Contains(former.Components, c) })
		for _, name := range former.Components {
			if slices.Contains(p.Components, name) {
				continue
			}
			if gets {
				return false
			}
			now, then := componentOf(decided.Workload, name), componentOf(before.Workload, name)
			changes = changes || now != nil
			if now != nil && !equality.Semantic.DeepEqual(now, then) {
				return false // it may need more room than there was
			}
		}
	}
	return changes
}

// whileReplacing returns the placements of a decision for its current step: with the replicas that leave their
// clusters, and with the components as far as the workload still has them. Clusters that are left are still linked
// if they answer. A name leads to the cluster that is linked last (workload.Remote): at first the former one.
func whileReplacing(decided, before *v1alpha1.Decision, answering []string) []v1alpha1.Placement {
	placements := make([]v1alpha1.Placement, len(decided.Placements))
	for i := range decided.Placements {
		p := decided.Placements[i].DeepCopy()
		former := placementOn(before, p.Cluster)
		leave := slices.DeleteFunc(lists.Without(former.Components, p.Components), func(name string) bool { return componentOf(decided.Workload, name) == nil })
		if decided.Replacement == v1alpha1.ReplacementRemove && len(leave) > 0 {
			placements[i] = *p
			continue
		}
		for _, name := range leave {
			p.Components = append(p.Components, name)
			p.GivePort(name, former.PublicPorts[name])
		}
		kept := v1alpha1.Placement{}
		for _, linked := range former.Linked {
			if !slices.Contains(answering, linked.Cluster) {
				continue // it may be lost
			}
			for _, link := range linked.Links {
				if componentOf(decided.Workload, link.Here) != nil && componentOf(decided.Workload, link.There) != nil {
					kept.Link(link.Here, linked.Cluster, link.There)
				}
			}
		}
		if decided.Replacement == v1alpha1.ReplacementStart {
			p.Linked = slices.Concat(p.Linked, kept.Linked)
		} else {
			p.Linked = slices.Concat(kept.Linked, p.Linked)
		}
		p.Replicas = max(p.Replicas, former.Replicas)
		p.Reserved = greatest(p.Reserved, former.Reserved)
		placements[i] = *p
	}
	return placements
}

// keepReplaced adds to a decision what the one before it has reserved on the same clusters, and what is left there, if that
// is more than the new one reserves and the one delivered last did: the one before may be delivered in part. Nothing else is
// left on its clusters from now on.
func (s *scope) keepReplaced(d *v1alpha1.Decision) {
	delivered := s.Status.DeliveredDecision()
	for i := range d.Placements {
		p := &d.Placements[i]
		before := placementOn(s.Status.Decision, p.Cluster)
		carried := greatest(greatest(before.Reserved, before.Replaced), s.leftOn(p.Cluster))
		held := greatest(p.Reserved, placementOn(delivered, p.Cluster).Reserved)
		if !equality.Semantic.DeepEqual(greatest(held, carried), held) {
			p.Replaced = carried
		}
	}
	s.recordCleaned(d.Clusters())
}

// placementOn returns the placement on a cluster; an empty one if there is none.
func placementOn(d *v1alpha1.Decision, cluster string) v1alpha1.Placement {
	if p := d.On(cluster); p != nil {
		return *p
	}
	return v1alpha1.Placement{}
}

func componentOf(w *v1alpha1.WorkloadPlan, name string) *v1alpha1.WorkloadComponent {
	for i := range w.Components {
		if w.Components[i].Name == name {
			return &w.Components[i]
		}
	}
	return nil
}

// greatest returns the greater of two amounts of each resource.
func greatest(a, b corev1.ResourceList) corev1.ResourceList {
	most := corev1.ResourceList{}
	for _, all := range []corev1.ResourceList{a, b} {
		for name, amount := range all {
			if has, ok := most[name]; !ok || amount.Cmp(has) > 0 {
				most[name] = amount.DeepCopy()
			}
		}
	}
	return most
}
