package v1alpha1

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// This file interprets the status of a ServiceInstance: its clusters now and later, and the
// operation that is under way. The controllers, the broker, the drivers, the bindings and the
// command line all use these methods, so that their answers agree.

// Reasons of the condition Placed of an instance that is delivered, but not on the clusters where
// it should be.
const (
	// ReasonStranded means that it has to leave a cluster, and no other cluster takes it.
	ReasonStranded = "Stranded"
	// ReasonNotInEachGroup means that some group of its plan has no room for it (Spread.Each).
	ReasonNotInEachGroup = "NotInEachGroup"
)

// Clusters returns the names of the chosen clusters in the decision's order; none for nil.
func (d *Decision) Clusters() []string {
	if d == nil {
		return nil
	}
	var names []string
	for i := range d.Placements {
		names = append(names, d.Placements[i].Cluster)
	}
	return names
}

// On returns the placement on a cluster; nil if there is none, and for nil.
func (d *Decision) On(cluster string) *Placement {
	if d == nil {
		return nil
	}
	for i := range d.Placements {
		if d.Placements[i].Cluster == cluster {
			return &d.Placements[i]
		}
	}
	return nil
}

// Uses reports whether the decision places something on a cluster; false for nil.
func (d *Decision) Uses(cluster string) bool { return slices.Contains(d.Clusters(), cluster) }

// Replicas returns the number of replicas on all clusters together; 0 if there are none.
func (d *Decision) Replicas() (sum int32) {
	for i := range d.Placements {
		sum += d.Placements[i].Replicas
	}
	return sum
}

// Shape returns the cluster that the decision creates; nil if it creates none, and for nil.
func (d *Decision) Shape() *ClusterShape {
	if d == nil || len(d.Placements) == 0 {
		return nil
	}
	return d.Placements[0].Shape
}

// Moves reports whether a delivered instance changes clusters by the decision, which is not
// delivered yet. A nil decision changes nothing.
func (d *Decision) Moves() bool { return d != nil && len(d.Leaving)+len(d.Joining) > 0 }

// MovesSince is when the first of these changes was decided. The decision must move.
func (d *Decision) MovesSince() metav1.Time {
	var at []metav1.Time
	for i := range d.Leaving {
		at = append(at, d.Leaving[i].At)
	}
	for i := range d.Joining {
		at = append(at, d.Joining[i].At)
	}
	return slices.MinFunc(at, func(a, b metav1.Time) int { return a.Compare(b.Time) })
}

// EndMove drops what the decision leaves, joins, carries and replaces. It is delivered, or is no move any more.
func (d *Decision) EndMove() {
	d.Leaving, d.Joining, d.Data = nil, nil, nil
	for i := range d.Placements {
		d.Placements[i].Replaced = nil
	}
}

// NamespaceCluster returns the member cluster that holds the instance's namespace, and so
// the accounts of its bindings. It returns "" if the placement is only a virtual node.
func (p *Placement) NamespaceCluster() string {
	switch {
	case p.Peering == nil:
		return p.Cluster
	case p.Peering.Hub != "":
		return p.Peering.Hub
	case p.Peering.Node != "":
		return ""
	default:
		return p.Cluster
	}
}

// Needs reports whether the placement is on a cluster, or is reached by way of it.
func (p *Placement) Needs(cluster string) bool {
	return p.Cluster == cluster || p.Peering != nil && (p.Peering.Consumer == cluster || p.Peering.Hub == cluster) ||
		slices.ContainsFunc(p.Linked, func(l LinkedCluster) bool { return l.Cluster == cluster })
}

// NamespaceClusters returns the clusters that hold the instance's namespace by the decision, and
// so the accounts of its bindings, each once; none for nil.
func (d *Decision) NamespaceClusters() []string {
	if d == nil {
		return nil
	}
	var names []string
	for i := range d.Placements {
		if name := d.Placements[i].NamespaceCluster(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Raw returns the parameters as JSON; nil if there are none.
func (s *InstanceState) Raw() []byte {
	if s.Parameters == nil {
		return nil
	}
	return s.Parameters.Raw
}

// DeliveredDecision returns the decision that was delivered last; nil if none was.
func (s *ServiceInstanceStatus) DeliveredDecision() *Decision {
	if s.Delivered == nil {
		return nil
	}
	return &s.Delivered.Decision
}

// Decisions returns the current decision, and then the one delivered last, as far as there are
// such.
func (s *ServiceInstanceStatus) Decisions() []*Decision {
	return slices.DeleteFunc([]*Decision{s.Decision, s.DeliveredDecision()}, func(d *Decision) bool { return d == nil })
}

// Latest returns the placements of the first of these decisions.
func (s *ServiceInstanceStatus) Latest() []Placement {
	if all := s.Decisions(); len(all) > 0 {
		return all[0].Placements
	}
	return nil
}

// InForce returns the placements of all of these decisions.
func (s *ServiceInstanceStatus) InForce() (all []*Placement) {
	for _, d := range s.Decisions() {
		for i := range d.Placements {
			all = append(all, &d.Placements[i])
		}
	}
	return all
}

// Everywhere returns the placements in force, and those that the instance has left and that are
// not removed yet.
func (s *ServiceInstanceStatus) Everywhere() []*Placement {
	all := s.InForce()
	for i := range s.Left {
		all = append(all, &s.Left[i].Placement)
	}
	return all
}

// IsOn reports whether the instance is on a cluster, or is being delivered to it. Where it has
// only left something behind, it is not.
func (s *ServiceInstanceStatus) IsOn(cluster string) bool {
	return s.Decision.Uses(cluster) || s.DeliveredDecision().Uses(cluster)
}

// Hub returns the cluster through which the instance is reached, or was where it has left; "" if
// there is none.
func (s *ServiceInstanceStatus) Hub() string {
	for _, p := range s.Everywhere() {
		if p.Peering != nil && p.Peering.Hub != "" {
			return p.Peering.Hub
		}
	}
	return ""
}

// LeftClusters returns the clusters that still hold something of the instance which it does not need any more. It may be on
// some of them.
func (s *ServiceInstanceStatus) LeftClusters() []string {
	var names []string
	for i := range s.Left {
		names = append(names, s.Left[i].Cluster)
	}
	return names
}

// IsPinned reports whether the instance cannot leave one of its clusters, see IsPinnedOn.
func (s *ServiceInstanceStatus) IsPinned() bool {
	return slices.ContainsFunc(s.DeliveredDecision().Clusters(), s.IsPinnedOn)
}

// IsPinnedOn reports whether the instance cannot leave a cluster, even a lost one: its workload has
// volumes there, and no other cluster has their content.
func (s *ServiceInstanceStatus) IsPinnedOn(cluster string) bool {
	d := s.DeliveredDecision()
	return d != nil && d.Workload != nil && slices.ContainsFunc(d.Placements, func(p Placement) bool {
		if p.Cluster != cluster {
			return false
		}
		for name := range p.Reserved {
			if IsStorage(name) {
				return true
			}
		}
		return false
	})
}

// Apart divides the components on a cluster into those that stay there, as their volumes do, and others; leave
// reports whether there are others. Neither are there if the plan places the workload as a whole.
func (s *ServiceInstanceStatus) Apart(cluster string) (stay []string, leave bool) {
	d := s.DeliveredDecision()
	if s.IsMoving() {
		d = s.Decision
	}
	p := d.On(cluster)
	if p == nil || d.Workload == nil {
		return nil, false
	}
	for _, name := range p.Components {
		if slices.ContainsFunc(d.Workload.Components, func(c WorkloadComponent) bool { return c.Name == name && c.HasVolumes() }) {
			stay = append(stay, name)
		} else {
			leave = true
		}
	}
	return stay, leave
}

// CanCarry reports whether the instance can move away from a cluster with the content of its volumes:
// its workload has hooks for backup and restore, and runs as a whole on that cluster alone.
func (s *ServiceInstanceStatus) CanCarry(cluster string) bool {
	d := s.DeliveredDecision()
	return d != nil && d.Workload != nil && d.Workload.IsBackedUp() && len(d.Placements) == 1 &&
		d.Placements[0].Cluster == cluster && len(d.Placements[0].Components) == 0
}

// IsFixed reports whether the instance stays where it was placed, whatever happens there: it is a cluster
// that Sluice creates, or an instance of another broker.
func (s *ServiceInstanceStatus) IsFixed() bool {
	return slices.ContainsFunc(s.InForce(), func(p *Placement) bool { return p.Shape != nil || p.Upstream != nil })
}

// IsFinished reports whether an operation was begun, and none is under way.
func (s *ServiceInstanceStatus) IsFinished() bool {
	return s.Operation != nil && s.Operation.State != StateInProgress
}

// IsUndelivered reports whether the current decision is not the one delivered last.
func (s *ServiceInstanceStatus) IsUndelivered() bool {
	return !equality.Semantic.DeepEqual(s.Decision, s.DeliveredDecision())
}

// IsMoving reports whether a delivered instance is on its way to other clusters.
func (s *ServiceInstanceStatus) IsMoving() bool { return s.Decision.Moves() }

// IsFailedProvision reports whether the instance could not be provisioned: it was never delivered.
func (s *ServiceInstanceStatus) IsFailedProvision() bool {
	return s.Operation != nil && s.Operation.State == StateFailed && s.Delivered == nil
}

// IsAbandoned reports whether an operation has failed before its effects were undone.
func (s *ServiceInstanceStatus) IsAbandoned() bool {
	return s.IsFinished() && !s.IsMoving() && s.IsUndelivered()
}

// IsDisplaced reports whether the instance, as it is delivered, has left clusters without
// getting others.
func (s *ServiceInstanceStatus) IsDisplaced() bool {
	d := s.DeliveredDecision()
	return d != nil && len(d.Displaced) > 0
}

// IsStranded reports whether the instance has to leave a cluster and cannot.
func (s *ServiceInstanceStatus) IsStranded() bool { return s.isPlacedBecause(ReasonStranded) }

// IsUncovered reports whether some group of the instance's plan has no room for it.
func (s *ServiceInstanceStatus) IsUncovered() bool { return s.isPlacedBecause(ReasonNotInEachGroup) }

func (s *ServiceInstanceStatus) isPlacedBecause(reason string) bool {
	placed := meta.FindStatusCondition(s.Conditions, ConditionPlaced)
	return placed != nil && placed.Reason == reason
}

// IsOfOtherTerm reports whether the current decision was made in another leader's term, and is
// not delivered. Such a decision counts only once this leader has repeated it.
func (s *ServiceInstanceStatus) IsOfOtherTerm(term string) bool {
	return s.Decision != nil && s.Decision.Term != term && s.IsUndelivered()
}

// IsSettled reports whether the instance is delivered where it should be, and nothing is being
// done with it or asked of it.
func (i *ServiceInstance) IsSettled() bool {
	s := &i.Status
	return i.DeletionTimestamp.IsZero() && s.Delivered != nil && s.IsFinished() &&
		!s.IsMoving() && s.Copying == nil && !s.IsAbandoned() && !s.IsDisplaced() && i.Annotations[AnnotationLeave] == ""
}

// MeasuredCluster returns the member cluster that the instance is the probe of; empty if it is none.
func (i *ServiceInstance) MeasuredCluster() string { return i.Labels[LabelMeasure] }

// ProbeStart returns the value of the parameter ProbeStart of a probe; empty if its first pod was not replaced yet.
func (i *ServiceInstance) ProbeStart() string {
	var parameters map[string]any
	_ = json.Unmarshal(i.Spec.Desired.Raw(), &parameters) // it has none then
	start, _ := parameters[ProbeStart].(string)
	return start
}

// StateInForce returns the state that the instance is in, or is being provisioned to. An update
// that failed or is in progress does not change it.
func (i *ServiceInstance) StateInForce() *InstanceState {
	if i.Status.Delivered != nil {
		return &i.Status.Delivered.State
	}
	return &i.Spec.Desired
}

// In returns the group of a copy as text, for instance
// "sluice.dev/provider=acme,topology.kubernetes.io/region=eu"; empty if its cluster is in none.
func (c *Copy) In() string { return labels.Set(c.Group).String() }
