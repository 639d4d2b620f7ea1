package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// An order that a broker does not carry out goes to the plan's next candidate, and one that a pool does not carry out to
// the next pool. The refusal is written with the next decision. What it may have left there is then in status.left: it is
// deleted first, but a broker that does not answer holds up nothing.
//
// A move that a cluster refuses is undone, and goes to another cluster next. A cluster that has refused is tried again
// only if no other fits.

// orderPatience is how long a broker may fail to accept an order before the next candidate is tried.
const orderPatience = 30 * time.Second

// elsewhere decides anew about an order that a broker did not carry out, without that broker. It returns false
// if there is no error, if the instance was there before, if the error may pass soon, or if no other candidate takes it now.
func (r *instanceReconciler) elsewhere(ctx context.Context, s *scope, why error) (decided bool, result ctrl.Result, err error) {
	at := s.orderedAt()
	if why == nil || at == nil || allPending(why) {
		return false, ctrl.Result{}, nil
	}
	refused := is[*delivery.RefusedError](why)
	if !refused && !allUnreachable(why) && s.now.Sub(s.Status.Operation.TriedSince()) < orderPatience {
		return false, ctrl.Result{}, nil
	}
	s.recordRefusal(at.Cluster, why)
	if !r.hasAnother(s) {
		s.takeBackRefusal()
		if refused {
			r.orderFailed(s, at, why)
		}
		return false, ctrl.Result{}, nil
	}
	r.orderFailed(s, at, why)
	s.happened(r.clock.Now(), v1alpha1.Event{Type: v1alpha1.EventRefused, Clusters: []string{at.Cluster}, Message: describe(why)})
	result, err = r.place(ctx, s)
	return true, result, err
}

// orderedAt returns the placement at a broker, or on a pool, that is being ordered for the first time; nil if there is none.
func (s *scope) orderedAt() *v1alpha1.Placement {
	if s.Status.IsFinished() || s.Status.Delivered != nil || s.Status.Decision == nil {
		return nil
	}
	for i := range s.Status.Decision.Placements {
		if p := &s.Status.Decision.Placements[i]; p.Upstream != nil || p.Pool != nil {
			return p
		}
	}
	return nil
}

// hasAnother reports whether a candidate that has not refused the order takes it now.
func (r *instanceReconciler) hasAnother(s *scope) bool {
	plan, err := r.plan(s.Spec.ServiceID, s.wanted().PlanID)
	if err != nil {
		return false
	}
	request, err := r.request(s, plan, s.refused())
	if err != nil {
		return false
	}
	request.Avoid(s.Status.Operation.Refusals)
	_, err = placement.Place(request, r.inventory.Snapshot())
	return err == nil
}

// orderFailed makes a failed order count against its broker, unless the consumer's parameters may be the cause. How a pool
// fails is no secret of another organisation: it counts by what its members have.
func (r *instanceReconciler) orderFailed(s *scope, at *v1alpha1.Placement, why error) {
	if refused := (*delivery.RefusedError)(nil); r.failed == nil || at.Upstream == nil || errors.As(why, &refused) && refused.OfParameters {
		return
	}
	const longest = 1000 // v1alpha1.OrderFailure.Reason
	r.failed(at.Cluster, v1alpha1.OrderFailure{
		Plan: at.Upstream.Name(), Platform: s.Spec.Platform, OrganizationGUID: s.Spec.OrganizationGUID,
		Reason: v1alpha1.Cut(describe(why), longest), At: metav1.NewTime(s.now),
	})
}

// refused returns the brokers that have refused the operation under way, as far as the decision uses them.
func (s *scope) refused() (due []v1alpha1.Departure) {
	if s.orderedAt() == nil {
		return nil
	}
	for _, refusal := range s.Status.Operation.Refusals {
		if s.Status.Decision.Uses(refusal.Cluster) {
			due = append(due, v1alpha1.Departure{Cluster: refusal.Cluster, Reason: refusal.Description, At: refusal.At})
		}
	}
	return due
}

// refusedBy returns the reasons of all brokers that refused the operation, for operators and for consumers.
func (s *scope) refusedBy() (operators, consumers string) {
	var all, told []string
	for i := range s.Status.Operation.Refusals {
		one := &s.Status.Operation.Refusals[i]
		all = append(all, one.Description)
		if !slices.Contains(told, one.Summary) {
			told = append(told, one.Summary)
		}
	}
	return strings.Join(all, "; "), strings.Join(told, "; ")
}

// withRefusals adds to the last broker's refusal those of the brokers before.
func (s *scope) withRefusals(last error) error {
	refused := (*delivery.RefusedError)(nil)
	if len(s.Status.Operation.Refusals) == 0 || !errors.As(last, &refused) {
		return last
	}
	before, told := s.refusedBy()
	all := *refused
	all.Reason, all.Consumer = before+"; "+refused.Reason, told
	if own := forConsumer(last); !strings.Contains(told, own) {
		all.Consumer += "; " + own
	}
	return &all
}

// mitigate deletes what brokers may have kept of the order before it went elsewhere. Whatever comes of it, the
// order goes on.
func (r *instanceReconciler) mitigate(ctx context.Context, s *scope) {
	if s.Status.Delivered != nil || len(s.Status.Left) == 0 {
		return
	}
	if _, err := r.clean(ctx, s); err != nil {
		log.FromContext(ctx).Info("What a broker may have kept of an order is not deleted yet", "instance", s.Spec.InstanceID, "reason", err.Error())
	}
}

// triesRefusedAgain forgets which clusters have refused the instance's move, if the last of them did so some time ago. It
// reports whether there were some. Until then it triggers another pass.
func (s *scope) triesRefusedAgain() bool {
	refusals := s.Status.Operation.Refusals
	if !s.Status.IsFinished() || len(refusals) == 0 {
		return false
	}
	if wait := refusals[len(refusals)-1].At.Add(dataPatience).Sub(s.now); wait > 0 {
		s.lookAgain(wait)
		return false
	}
	return s.recordMoveOver()
}
