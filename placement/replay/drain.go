package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// Move is the expected result of a drain for an instance on the cluster.
type Move struct {
	// Instance is its name.
	Instance string `json:"instance"`
	// To are the clusters on which it is afterwards; none if it stays.
	To []string `json:"to,omitempty"`
	// Why it stays; empty if it moves.
	Why string `json:"why,omitempty"`
}

// Drain returns what a drain of a cluster at a time would do with the instances there, in the order of their names: each
// is placed after those before it have moved, by the rules of a real move. Nothing is displaced, made or grown for it, and
// nothing is ordered meanwhile. The fleet stays as it is. It is an error that there is no such cluster.
func (f *Fleet) Drain(plans *catalog.Snapshot, cluster string, at time.Time) ([]Move, error) {
	n := slices.IndexFunc(f.Clusters, func(m v1alpha1.MemberCluster) bool { return m.Name == cluster })
	if n < 0 {
		return nil, fmt.Errorf("there is no member cluster %q", cluster)
	}
	m := f.Clusters[n].DeepCopy()
	m.Spec.Drain(metav1.NewTime(at))
	d := &drain{cluster: placement.ClusterOf(m, at), plans: plans, inventory: f.inventory(at), at: at}
	d.inventory.UpsertCluster(d.cluster)
	var on []*v1alpha1.ServiceInstance
	for i := range f.Instances {
		if f.Instances[i].Status.IsOn(cluster) {
			on = append(on, &f.Instances[i])
		}
	}
	slices.SortFunc(on, func(a, b *v1alpha1.ServiceInstance) int { return strings.Compare(a.Name, b.Name) })
	moves := make([]Move, len(on))
	for i, one := range on {
		moves[i] = Move{Instance: one.Name}
		var err error
		if moves[i].To, err = d.move(one); err != nil {
			moves[i].Why = err.Error()
		}
	}
	return moves, nil
}

// drain is one that is played.
type drain struct {
	cluster   *placement.Cluster
	plans     *catalog.Snapshot
	inventory *placement.Inventory
	at        time.Time
}

// move reserves the place to which an instance moves. The error says why it stays.
func (d *drain) move(instance *v1alpha1.ServiceInstance) (to []string, err error) {
	status := &instance.Status
	state := &instance.Spec.Desired
	if status.Delivered != nil {
		state = &status.Delivered.State
	}
	plan, err := d.plans.Plan(instance.Spec.ServiceID, state.PlanID)
	switch {
	case status.IsMoving() && !status.Decision.Uses(d.cluster.Name):
		return status.Decision.Clusters(), nil // it is on its way
	case status.IsFixed():
		return nil, errors.New("clusters, and instances of other brokers, do not move")
	case err != nil:
		return nil, fmt.Errorf("its plan is not in the catalog any more: %w", err)
	case !d.evicts(plan):
		return nil, fmt.Errorf("its plan tolerates the taint %s", v1alpha1.TaintDrain)
	case status.IsPinnedOn(d.cluster.Name) && !status.CanCarry(d.cluster.Name):
		return nil, errors.New("it has volumes there, and no backup carries them")
	}
	order := Order{ID: instance.Name, PlanID: plan.ID, Parameters: state.Raw(), Leaving: []string{d.cluster.Name}}
	order.of(instance)
	if decided := cmp.Or(status.DeliveredDecision(), status.Decision); decided.Workload != nil {
		plan = plan.Running(decided.Workload)
	}
	request, err := placement.NewRequest(order.ID, plan, order.Parameters)
	if err != nil {
		return nil, err
	}
	order.stay(&request)
	request.At = d.at
	decision, err := d.inventory.Place(d.inventory.Snapshot().Govern(request, order.Consumer))
	if err != nil {
		return nil, err
	}
	return decision.API(1).Clusters(), nil
}

// evicts reports whether the drain evicts instances of a plan.
func (d *drain) evicts(plan *catalog.Plan) bool {
	var tolerations []corev1.Toleration
	if plan.Resources != nil {
		tolerations = plan.Resources.Tolerations
	}
	_, evicts := placement.Evict(d.cluster, tolerations)
	return evicts
}
