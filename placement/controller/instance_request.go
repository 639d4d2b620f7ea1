package controller

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement"
)

// request returns the instance's request for placement. It stays on the clusters where it was
// delivered, is being delivered, or holds capacity by a decision that may or may not be on the
// hub, except those that it leaves.
func (r *instanceReconciler) request(s *scope, plan *catalog.Plan, due []v1alpha1.Departure) (placement.Request, error) {
	leaving := named(whole(due))
	hidden := workload.ParametersOf(s.ServiceInstance, r.keys)
	parameters, err := hidden.Opened(s.wanted().Raw())
	if err != nil {
		return placement.Request{}, err
	}
	if !s.Status.IsFinished() {
		// Requested parameters must match the plan of today. Those in force were accepted, and
		// stay valid when the operator narrows the plan afterwards.
		var inForce *v1alpha1.InstanceState
		if d := s.Status.Delivered; d != nil {
			inForce = &d.State
		}
		if err := plan.ValidateState(hidden, inForce, s.wanted()); err != nil {
			return placement.Request{}, fmt.Errorf("parameters of plan %s: %w", plan.Name, redacted(err, hidden, s.wanted().Raw()))
		}
	}
	if w := runningWorkload(s.ServiceInstance, s.wanted()); w != nil {
		plan = plan.Running(w)
	}
	request, err := placement.NewRequest(s.Name, plan, parameters)
	if err != nil {
		return placement.Request{}, err
	}
	request = request.Within(s.Spec.Pool)
	if request.Spread != nil && request.Spread.Each {
		r.inventory.Follow(s.Name, request.Spread.By)
	} else {
		r.inventory.Follow(s.Name, nil)
	}
	if request.Shape != nil {
		settleMaintenance(request.Shape, s.ServiceInstance, s.wanted(), plan.Cluster.Versions)
		if request.Shape.Member, err = r.inventory.Snapshot().Policies().MemberOf(s.ServiceInstance, plan, parameters); err != nil {
			return placement.Request{}, err
		}
		if err := plan.RenderAddOns(s.ServiceInstance, request.Shape, parameters); err != nil {
			return placement.Request{}, err
		}
	}
	request.Peering.Stay(s.Status.Decision, s.Status.DeliveredDecision())
	request.Upstream.Stay(s.Status.DeliveredDecision(), kept(s.ServiceInstance, s.wanted()) != nil)
	request.At = s.now
	request = r.inventory.Snapshot().Govern(request, placement.ConsumerOf(s.ServiceInstance))
	moving := s.Status.IsMoving() && !s.staysWithData()
	switch {
	case moving:
		request.Current = s.Status.Decision.Clusters()
	case s.Status.Delivered != nil:
		request.Current = s.Status.Delivered.Decision.Clusters()
	case s.Status.Decision != nil:
		request.Current = s.Status.Decision.Clusters()
	default:
		request.Current = r.inventory.ClustersHeld(s.Name)
	}
	if s.Status.IsDisplaced() && !s.Status.IsMoving() {
		named := slices.Collect(maps.Keys(placement.Ledger(&s.Status)))
		request.Current = lists.Union(request.Current, lists.Without(r.inventory.ClustersHeld(s.Name), named))
	}
	if asked := s.restoreRequest(); asked != nil && asked.Cluster != v1alpha1.ElsewhereCluster && s.restoredElsewhere(s.Status.CarriesFrom()) != "" {
		if request.Selector, err = placement.OnlyClusters(request.Selector, asked.Cluster); err != nil {
			return placement.Request{}, fmt.Errorf("restore on %s: %w", asked.Cluster, err)
		}
	}
	if s.Status.IsFinished() { // it moves
		request.Sold = placement.SoldRules(&s.Status)
	}
	request.ComponentClusters = componentClusters(s, due)
	request.Current, request.Leaving = lists.Without(request.Current, leaving), leaving
	if moving {
		request.Leaving = lists.Union(leaving, lists.Without(named(s.Status.Decision.Leaving), s.Status.Decision.Clusters()))
	}
	if to := s.movesTo(r.inventory.Snapshot(), due); len(to) > 0 {
		return request.MovingTo(to)
	}
	return request, nil
}

// termsOf returns the terms by which a decision was made.
func (s *scope) termsOf(plan *catalog.Plan, request *placement.Request, decision *placement.Decision) *v1alpha1.Terms {
	terms := &v1alpha1.Terms{
		At: metav1.NewTime(s.now.Truncate(time.Second)), By: s.Spec.OriginatingIdentity, Offering: plan.Offering.Name, PlanDigest: plan.Digest, Policies: request.Policies,
		ConsumerCredentials: placement.CredentialsOf(request.Proven),
	}
	for i := range decision.Placements {
		terms.Clusters = append(terms.Clusters, decision.Placements[i].Evidence)
	}
	return terms
}

// redacted returns why parameters are wrong without the texts of those that are hidden.
func redacted(err error, hidden workload.Parameters, stored json.RawMessage) error {
	wrong := (*catalog.ParameterError)(nil)
	if !errors.As(err, &wrong) {
		return err
	}
	return &catalog.ParameterError{Path: wrong.Path, Message: hidden.Redacted(wrong.Message, stored)}
}

// kept returns what is delivered of an instance, if a state has the same plan and does not ask for its next maintenance; nil
// otherwise.
func kept(i *v1alpha1.ServiceInstance, wanted *v1alpha1.InstanceState) *v1alpha1.DeliveredState {
	d := i.Status.Delivered
	if d == nil || d.State.PlanID != wanted.PlanID || d.State.MaintenanceVersion != wanted.MaintenanceVersion {
		return nil
	}
	return d
}

// settleMaintenance sets the part of the shape that comes with maintenance: the add-ons sold, and
// its version if the consumer requests none. A new instance gets the plan's current ones. An
// existing one keeps its own, unless it requests the plan's next maintenance.
func settleMaintenance(shape *v1alpha1.ClusterShape, instance *v1alpha1.ServiceInstance, wanted *v1alpha1.InstanceState, sold []string) {
	version := sold[0]
	if d := kept(instance, wanted); d != nil {
		if has := d.Decision.Shape(); has != nil {
			version, shape.AddOnsSold = has.Version, has.AddOnsSold
			if shape.AddOnsSold == nil {
				shape.AddOnsSold = has.AddOns // decided when consumers could not choose
			}
		}
	}
	shape.Version = cmp.Or(shape.Version, version)
}

// componentClusters returns the clusters that the components of an instance are on, or are being
// delivered to, except those that they leave.
func componentClusters(s *scope, due []v1alpha1.Departure) map[string]string {
	decision := s.Status.Decision
	if !s.Status.IsMoving() && s.Status.Delivered != nil {
		decision = &s.Status.Delivered.Decision
	}
	clusters := map[string]string{}
	if decision == nil {
		return clusters
	}
	for _, p := range decision.Placements {
		leaves := slices.IndexFunc(due, func(d v1alpha1.Departure) bool { return d.Cluster == p.Cluster })
		for _, component := range p.Components {
			if leaves < 0 || slices.Contains(due[leaves].Stay, component) {
				clusters[component] = p.Cluster
			}
		}
	}
	return clusters
}
