package placement

import "time"

// AnnotationObserve on a ServiceInstance has it looked at now, and repaired if need
// be, whenever its value changes.
const AnnotationObserve = "sluice.dev/observe"

// observation is when an instance is looked at next.
type observation struct {
	at time.Time
	// request is the last value of AnnotationObserve that was acted upon.
	request string
}

// untilObservation is how long it is until the instance is to be looked at, zero or
// less when that is now. After a start the first looks are spread over one
// interval, by the hash of the name.
func (r *instanceReconciler) untilObservation(s *scope) time.Duration {
	request := s.Annotations[AnnotationObserve]
	known, ok := r.observations.Load(s.Name)
	if !ok {
		wait := time.Duration(hash64(s.Name) % uint64(r.observeEvery)) //nolint:gosec // positive
		r.observations.Store(s.Name, observation{at: s.now.Add(wait), request: request})
		return max(wait, 1)
	}
	s.due = known.(observation)
	if known.(observation).request != request {
		return 0
	}
	return known.(observation).at.Sub(s.now)
}

// afterLoss is how long after something was deleted an instance is looked at: what goes
// together is repaired together, and whoever keeps deleting does not keep Sluice busy.
const afterLoss = 250 * time.Millisecond

// lost has an instance looked at shortly, because something that belongs to it was deleted on
// a cluster. Deletions by Sluice itself cost a look, too.
func (r *instanceReconciler) lost(instance string) {
	known, ok := r.observations.Load(instance)
	if !ok {
		return // it is not known yet, and looked at anyway
	}
	o := known.(observation)
	o.at = r.clock.Now().Add(afterLoss)
	r.observations.Store(instance, o)
	r.lookAfter(instance, afterLoss)
}

// scheduleObservation sets the next look, an interval from now give or take a
// tenth, and returns how long that is. What was lost during this look comes first.
func (r *instanceReconciler) scheduleObservation(s *scope) time.Duration {
	spread := r.observeEvery / 5
	wait := r.observeEvery - spread/2
	if spread > 0 {
		wait += time.Duration(mix(hash64(s.Name)^uint64(s.now.UnixNano())) % uint64(spread)) //nolint:gosec // bits
	}
	next := observation{at: s.now.Add(wait), request: s.Annotations[AnnotationObserve]}
	if !r.observations.CompareAndSwap(s.Name, s.due, next) {
		return afterLoss
	}
	return wait
}
