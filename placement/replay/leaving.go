package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement"
)

// Move is the expected result for an instance on a cluster that is drained, lost, or to be left by this instance.
type Move struct {
	// Instance is its name.
	Instance string `json:"instance"`
	// To are the clusters on which it is afterwards; none if it stays. A lost cluster is not among them, although
	// components with volumes wait for it there.
	To []string `json:"to,omitempty"`
	// Why it stays; empty if it moves.
	Why string `json:"why,omitempty"`
}

// ErrNoCluster means that a fleet does not have the cluster that is asked about.
var ErrNoCluster = errors.New("there is no member cluster")

// Leave returns what a drain of a cluster at a time would do with the instances there, in the order of their names: each
// is placed after those before it have moved, by the rules of a real move. Nothing is displaced, made or grown for it, and
// nothing is ordered meanwhile. If lost is true, it is what the loss of the cluster would do, once none of them tolerates
// it any more. The fleet stays as it is. When the context ends, untried is the number of instances that are left. The error
// is ErrNoCluster.
func (f *Fleet) Leave(ctx context.Context, plans *catalog.Snapshot, cluster string, lost bool, at time.Time) (moves []Move, untried int, err error) {
	n := slices.IndexFunc(f.Clusters, func(m v1alpha1.MemberCluster) bool { return m.Name == cluster })
	if n < 0 {
		return nil, 0, fmt.Errorf("%w %q", ErrNoCluster, cluster)
	}
	m := f.Clusters[n].DeepCopy()
	if lost {
		v1alpha1.SetCondition(&m.Status.Conditions, m.Generation, v1alpha1.ConditionReachable, metav1.ConditionFalse, "Supposed", "is supposed to be lost")
	} else {
		m.Spec.Drain(metav1.NewTime(at))
	}
	l := &leaving{cluster: placement.ClusterOf(m, at), plans: plans, inventory: f.inventory(at), at: at}
	l.inventory.UpsertCluster(l.cluster)
	var on []*v1alpha1.ServiceInstance
	for i := range f.Instances {
		if f.Instances[i].Status.IsOn(cluster) && f.Instances[i].MeasuredCluster() == "" { // a probe ends with the cluster
			on = append(on, &f.Instances[i])
		}
	}
	slices.SortFunc(on, func(a, b *v1alpha1.ServiceInstance) int { return strings.Compare(a.Name, b.Name) })
	moves = make([]Move, 0, len(on))
	for _, one := range on {
		if ctx.Err() != nil {
			break
		}
		move := Move{Instance: one.Name}
		var stays error
		if move.To, stays = l.move(one); stays != nil {
			move.Why = stays.Error()
		}
		moves = append(moves, move)
	}
	return moves, len(on) - len(moves), nil
}

// Move returns what would come of moving an instance off a cluster at a time, to one of the clusters to; none means any.
// It is decided as Leave decides about each instance. The error is ErrNoCluster.
func (f *Fleet) Move(plans *catalog.Snapshot, instance *v1alpha1.ServiceInstance, from string, to []string, at time.Time) (Move, error) {
	inventory := f.inventory(at)
	cluster := inventory.Snapshot().Cluster(from)
	for _, name := range append([]string{from}, to...) {
		if inventory.Snapshot().Cluster(name) == nil {
			return Move{}, fmt.Errorf("%w %q", ErrNoCluster, name)
		}
	}
	l := &leaving{cluster: cluster, plans: plans, inventory: inventory, at: at, asked: true, only: to}
	move, stays := Move{Instance: instance.Name}, error(nil)
	if move.To, stays = l.move(instance); stays != nil {
		move.Why = stays.Error()
	}
	return move, nil
}

// leaving is a cluster that instances leave.
type leaving struct {
	cluster   *placement.Cluster // as it is supposed to be
	plans     *catalog.Snapshot
	inventory *placement.Inventory
	at        time.Time
	// asked means that an operator asks an instance to leave, whatever the cluster's taints; only lists the clusters
	// that it may come to, none means any.
	asked bool
	only  []string
}

// move reserves the place to which an instance moves. The error says why it stays.
func (l *leaving) move(instance *v1alpha1.ServiceInstance) (to []string, err error) {
	status := &instance.Status
	if status.IsMoving() && !status.Decision.Uses(l.cluster.Name) {
		return status.Decision.Clusters(), nil // it is on its way
	}
	state := &instance.Spec.Desired
	if status.Delivered != nil {
		state = &status.Delivered.State
	}
	plan, err := l.plans.Plan(instance.Spec.ServiceID, state.PlanID)
	if err != nil {
		return nil, fmt.Errorf("its plan is not in the catalog any more: %w", err)
	}
	if err := l.stays(status, plan); err != nil {
		return nil, err
	}
	order := Order{ID: instance.Name, PlanID: plan.ID, Parameters: state.Raw(), Leaving: []string{l.cluster.Name}}
	order.of(instance)
	if stay := l.apart(status); len(stay) > 0 {
		order.keep(l.cluster.Name, stay)
	}
	if decided := cmp.Or(status.DeliveredDecision(), status.Decision); decided.Workload != nil {
		plan = plan.Running(decided.Workload)
	}
	request, err := placement.NewRequest(order.ID, plan, order.Parameters)
	if err != nil {
		return nil, err
	}
	order.stay(&request)
	request.At = l.at
	if len(l.only) > 0 {
		if request, err = request.MovingTo(l.only); err != nil {
			return nil, err
		}
	}
	decision, err := l.inventory.Place(l.inventory.Snapshot().Govern(request, order.Consumer))
	if err != nil {
		return nil, err
	}
	return lists.Without(decision.API(1).Clusters(), []string{l.cluster.Name}), nil
}

// apart returns the components of an instance that wait for the cluster, as their volumes are there, while others leave
// it; none if nothing leaves it, or everything.
func (l *leaving) apart(status *v1alpha1.ServiceInstanceStatus) []string {
	if stay, leave := status.Apart(l.cluster.Name); leave && !l.cluster.Ready && status.IsPinnedOn(l.cluster.Name) {
		return stay
	}
	return nil
}

// stays returns why an instance of a plan does not leave the cluster, wherever else there is room; nil if it does.
func (l *leaving) stays(status *v1alpha1.ServiceInstanceStatus, plan *catalog.Plan) error {
	var tolerations []corev1.Toleration
	if plan.Resources != nil {
		tolerations = plan.Resources.Tolerations
	}
	eviction, evicts := placement.Evict(l.cluster, tolerations)
	isCarried := status.CanCarry(l.cluster.Name)
	switch {
	case status.IsFixed():
		return errors.New("clusters, and instances of other brokers, do not move")
	case !evicts && !l.asked:
		return errors.New("its plan tolerates it")
	case eviction.Unreachable && l.inventory.Snapshot().Outage():
		return errors.New("more than half of the clusters would not answer, and then nothing moves")
	case !status.IsPinnedOn(l.cluster.Name) || len(l.apart(status)) > 0:
		return nil
	case !l.cluster.Ready && isCarried:
		return errors.New("it has volumes there, and waits for the cluster; `sluice instance restore` would start it elsewhere from a backup")
	case !l.cluster.Ready:
		return errors.New("it has volumes there, and waits for the cluster")
	case !isCarried:
		return errors.New("it has volumes there, and no backup carries them")
	}
	return nil
}
