package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// scope is one instance in one pass of the reconciler.
type scope struct {
	*v1alpha1.ServiceInstance
	// now is when the pass began.
	now time.Time
	// polling is how long the platform polls an operation of the instance's plan.
	polling time.Duration
	// fresh is true if the hub does not know the current operation yet.
	fresh bool
	// failing is the reason of the current operation's failure, while the operation is being undone.
	failing string
	// cause is the error behind failing.
	cause error
	// resealed is true if the hub does not know yet that the present generation differs only in sealed parameters.
	resealed bool
	// undone is true if the current operation has failed, and clusters and brokers are as before it.
	undone bool
	// due is the check that is made in this pass, if any.
	due observation
	// failures are the errors of the last call of drivers (each), by cluster.
	failures map[string]error
	// said has the words of clusters in that call, by cluster.
	said map[string]delivery.Said
	// heard is true if the hub does not know all of that.
	heard bool
	// warnings name the quotas that the consumer nears by the decision of this pass.
	warnings []string
	// unclean is the error with which clean has failed in this pass. It holds up no other phase.
	unclean error
	// queued is true while the instance waits for its turn to move.
	queued bool
	// ready is condition Ready as the hub has it; "" if it is not set.
	ready metav1.ConditionStatus
	// delivered, used and agreed are what was delivered, the usage and the contracts, as the hub has it.
	delivered *v1alpha1.DeliveredState
	used      []v1alpha1.UsagePeriod
	agreed    []v1alpha1.Contract
	// open is true if an operation is under way there, or was begun in this pass.
	open bool
	// again is the longest time until the next pass, whatever else happens; zero means no
	// limit.
	again time.Duration
}

// defaultPolling is the assumed polling time of platforms if the plan does not set it or is
// unknown; OSB 2.17 ("Service Plan Object", maximum_polling_duration) leaves it to the
// platform.
const defaultPolling = time.Hour

// lookAgain triggers another pass after at most the given time.
func (s *scope) lookAgain(after time.Duration) {
	if s.again == 0 || after < s.again {
		s.again = max(after, time.Millisecond)
	}
}

// sooner returns a result that waits no longer than again allows.
func (s *scope) sooner(result ctrl.Result) ctrl.Result {
	if s.again > 0 && (result.RequeueAfter == 0 || s.again < result.RequeueAfter) {
		result.RequeueAfter = s.again
	}
	return result
}

// deadline returns the latest time for an operation to fail, so that the platform still learns
// of it: a tenth of the polling time before its end, at most half a minute.
func (s *scope) deadline(from time.Time) time.Time {
	return from.Add(s.polling - min(s.polling/10, 30*time.Second))
}

// since returns when the current move, copy of data or operation began.
func (s *scope) since() time.Time {
	switch {
	case s.Status.IsFinished() && s.Status.IsMoving():
		return s.Status.Decision.MovesSince().Time
	case s.Status.IsFinished() && s.Status.Copying != nil:
		return s.Status.Copying.Since.Time
	}
	return s.Status.Operation.Began(s.Status.Events)
}

// late reports whether the current operation is past its deadline.
func (s *scope) late() bool {
	return !s.now.Before(s.deadline(s.Status.Operation.StartedAt.Time))
}

// soonFor returns when to check again what a member cluster is waiting for: at once at first, then after a quarter of the
// time it has taken so far, but not before what is waited for asks for it.
func (s *scope) soonFor(blocker error, since time.Time) time.Duration {
	const shortest, longest = 20 * time.Millisecond, 5 * time.Second
	soon := min(max(s.now.Sub(since)/4, shortest), longest)
	if waits := (*delivery.PendingError)(nil); errors.As(blocker, &waits) {
		return max(soon, waits.NotBefore)
	}
	return soon
}

// wanted returns the state to deliver: the requested one or, if that has been handled, the one
// in force.
func (s *scope) wanted() *v1alpha1.InstanceState {
	if s.Status.IsFinished() {
		return s.StateInForce()
	}
	return &s.Spec.Desired
}

// sameAsDelivered reports whether the requested state, except its context, is the delivered
// one.
func (s *scope) sameAsDelivered() bool {
	d := kept(s.ServiceInstance, &s.Spec.Desired)
	return d != nil && equality.Semantic.DeepEqual(d.State.Parameters, s.Spec.Desired.Parameters) &&
		equality.Semantic.DeepEqual(s.Status.Decision, &d.Decision)
}

// decided reports whether the decision is for the instance's current generation.
func (s *scope) decided() bool {
	return s.Status.Decision != nil && s.Status.Decision.Generation == s.Generation
}

// mustMove reports whether the decision in force, or being delivered, uses a cluster that has
// to be left.
func (s *scope) mustMove(due []v1alpha1.Departure) bool {
	return slices.ContainsFunc(due, func(d v1alpha1.Departure) bool {
		return slices.Contains(s.Status.Decision.Clusters(), d.Cluster)
	})
}

// driverOutside returns the driver by which the instance has something outside of a cluster that it is on, or has left: on
// other clusters, if there is a peering, or an order on the hub, if the cluster is a pool. It is empty if there is nothing.
func (s *scope) driverOutside(cluster string) string {
	for _, p := range s.Status.Everywhere() {
		switch {
		case p.Cluster != cluster:
		case p.Peering != nil:
			return v1alpha1.DriverLiqo
		case p.Pool != nil:
			return v1alpha1.DriverPool
		}
	}
	return ""
}

// yields returns the reason for which the instance has to leave a cluster for another instance;
// empty if it has not.
func (s *scope) yields(snapshot *placement.Snapshot, cluster string) (reason string) {
	by, p := snapshot.Preempting(s.Name, cluster)
	if p == nil {
		return ""
	}
	if p.Moves() {
		return fmt.Sprintf("it makes room for %s: %s", by, p.On(cluster).Message)
	}
	return fmt.Sprintf("%s of priority class %s (%d) %s", by, p.PriorityClass, p.Priority, p.On(cluster).Message)
}

// moveMessage describes how far a move is, and what it waits for.
func (s *scope) moveMessage(blocker string) string {
	d := s.Status.Decision
	message := fmt.Sprintf("coming to %s (%s)", where(d), inEachGroup)
	if len(d.Leaving) > 0 {
		message = fmt.Sprintf("moving from %s (%s) to %s", strings.Join(named(d.Leaving), ", "), d.Leaving[0].Reason, where(d))
	}
	if blocker != "" {
		message += ": " + blocker
	}
	return message
}

// where returns a decision's clusters for messages, with the replicas on each if there are some.
func where(d *v1alpha1.Decision) string {
	clusters := d.Clusters()
	for i := range clusters {
		if n := d.Placements[i].Replicas; n > 0 {
			clusters[i] += fmt.Sprintf(" (%d of %d replicas)", n, d.Replicas())
		}
	}
	return cmp.Or(strings.Join(clusters, ", "), "nowhere")
}
