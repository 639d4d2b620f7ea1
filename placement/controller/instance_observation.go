package controller

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// AnnotationObserve on a ServiceInstance triggers a check, and a repair if needed, whenever its
// value changes.
const AnnotationObserve = "sluice.dev/observe"

// observation is when an instance is checked next.
type observation struct {
	at time.Time
	// request is the last value of AnnotationObserve that was handled.
	request string
}

// untilObservation returns the time until the next check of the instance; zero or less means
// now. After a start the first checks are spread over one interval.
func (r *instanceReconciler) untilObservation(s *scope) time.Duration {
	request := s.Annotations[AnnotationObserve]
	known, ok := r.observations.Load(s.Name)
	if !ok {
		wait := rand.N(observeEvery) // no secret
		r.observations.Store(s.Name, observation{at: s.now.Add(wait), request: request})
		return max(wait, 1)
	}
	s.due = known.(observation)
	if known.(observation).request != request || r.volumesTurned(s) {
		return 0
	}
	return known.(observation).at.Sub(s.now)
}

// errMissed is the reason why a cluster that is back gets a delivery without a check: components may have left it
// meanwhile, and a check looks only for those that should be there.
var errMissed = errors.New("it answers again")

// volumesTurned reports whether the cluster with the volumes of an instance was lost, or is back, and the
// condition Ready does not say so yet.
func (r *instanceReconciler) volumesTurned(s *scope) bool {
	if !s.Status.IsPinned() {
		return false
	}
	ready, snapshot := meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady), r.inventory.Snapshot()
	return slices.ContainsFunc(s.Status.DeliveredDecision().Clusters(), func(name string) bool {
		c := snapshot.Cluster(name)
		return c != nil && c.Ready != ready && s.Status.IsPinnedOn(name)
	})
}

// reportsAtOnce is how many results of checks are written at the same time. When many clusters are lost, each of their
// instances has one. A write takes a megabyte of an embedded hub, and few keep it busy.
const reportsAtOnce = 8

// report writes the result of a check. While enough others are written it returns false: the instance is woken, and checked
// again, when its turn comes.
func (r *instanceReconciler) report(ctx context.Context, s *scope) (written bool, err error) {
	leave, busy := r.reports.Enter("", s.Name)
	if busy != nil {
		return false, nil
	}
	err = r.write(ctx, s, writeProgress)
	leave(err)
	return err == nil, err
}

// afterLoss is the delay of the check after an object was deleted. Deletions that come together
// are repaired together, and repeated deletions do not keep Sluice busy.
const afterLoss = 250 * time.Millisecond

// afterNews is the delay of the pass after a workload's status has changed: several changes come
// together.
const afterNews = 50 * time.Millisecond

// progressed triggers a pass over an instance whose workload has come further on a cluster. The pass does
// something only if an operation waits for it, which a removal does not.
func (r *instanceReconciler) progressed(instance string) {
	if !r.isRemoved(instance) {
		r.lookAfter(instance, afterNews)
	}
}

// isRemoved reports whether the removal of an instance has begun. It ends object by object, and each of them would trigger a
// pass, which asks the cluster and finds the namespace still there.
func (r *instanceReconciler) isRemoved(instance string) bool {
	_, is := r.removing.Load(instance)
	return is
}

// ended triggers a pass at once over an instance that is being removed when a namespace of it is gone; that of another
// instance is lost.
func (r *instanceReconciler) ended(instance string) {
	if !r.isRemoved(instance) {
		r.lost(instance)
		return
	}
	r.lookAfter(instance, 0)
}

// lost triggers a check of an instance shortly after one of its objects was deleted or changed on a
// cluster, and a pass over one that is being delivered. Writes by Sluice itself trigger one, too.
func (r *instanceReconciler) lost(instance string) {
	if r.isRemoved(instance) {
		return
	}
	r.applied.forget(instance)
	if known, ok := r.observations.Load(instance); ok {
		o := known.(observation)
		o.at = r.clock.Now().Add(afterLoss)
		r.observations.Store(instance, o)
	}
	r.lookAfter(instance, afterLoss)
}

// scheduleObservation sets the next check to one interval from now, plus or minus a tenth, and
// returns the time until then. A loss reported during this check comes first.
func (r *instanceReconciler) scheduleObservation(s *scope) time.Duration {
	spread := observeEvery / 5
	wait := observeEvery - spread/2
	if spread > 0 {
		wait += rand.N(spread) // no secret
	}
	next := observation{at: s.now.Add(wait), request: s.Annotations[AnnotationObserve]}
	if !r.observations.CompareAndSwap(s.Name, s.due, next) {
		return afterLoss
	}
	return wait
}
