package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// each calls a driver's method for all placements at once, to deliver a state, if any. It joins the errors, which name
// their clusters, in the order of the placements, and keeps them and what the clusters
// say in the scope.
//
// Step 6 of a provision (docs/architecture.md).
func (r *instanceReconciler) each(ctx context.Context, s *scope, placements []v1alpha1.Placement, state *v1alpha1.InstanceState, runs *workload.Order, call func(delivery.Driver, context.Context, delivery.Delivery) error) error {
	s.failures, s.said = map[string]error{}, map[string]delivery.Said{}
	former, err := r.former(s, state, runs)
	if err != nil {
		return err
	}
	failures, said := make([]error, len(placements)), make([]delivery.Said, len(placements))
	var calls sync.WaitGroup
	for i, p := range placements {
		calls.Go(func() {
			d := delivery.Delivery{Instance: s.ServiceInstance, Placement: p, State: state, Workload: runs.On(&p, placements), Said: &said[i]}
			if former == runs {
				d.Former = d.Workload
			} else if before := s.Status.DeliveredDecision(); before.On(p.Cluster) != nil {
				d.Former = former.On(before.On(p.Cluster), before.Placements)
			}
			failures[i] = r.one(ctx, s, d, call)
		})
	}
	calls.Wait()
	for i, p := range placements {
		s.failures[p.Cluster], s.said[p.Cluster] = failures[i], said[i]
	}
	return errors.Join(failures...)
}

// former returns what runs by the state in force while a state is delivered: the same, unless that is an update.
func (r *instanceReconciler) former(s *scope, state *v1alpha1.InstanceState, runs *workload.Order) (*workload.Order, error) {
	inForce := s.Status.Delivered
	switch {
	case state == nil || inForce == nil:
		return nil, nil
	case s.Status.IsFinished() || state == &inForce.State:
		return runs, nil
	}
	return r.workload(s, &inForce.Decision, &inForce.State)
}

// one calls a driver's method for a placement, if the cluster has a place for the call.
func (r *instanceReconciler) one(ctx context.Context, s *scope, d delivery.Delivery, call func(delivery.Driver, context.Context, delivery.Delivery) error) error {
	name, driver, err := r.driver(s, d)
	if err != nil {
		return err
	}
	if stopped := s.stoppedOn(d.Placement.Cluster); stopped != nil && d.Workload != nil {
		if r.target == nil {
			return &delivery.PendingError{Step: s.sayCopying(), Detail: noTarget}
		}
		d.Data = r.step(s, stopped)
	}
	leave, err := r.places.Enter(d.Placement.Cluster, s.Name)
	if err != nil {
		return err
	}
	d.Applied = r.applied.of(d)
	began := r.clock.Now()
	err = call(driver, ctx, d)
	r.metrics.delivered(name, r.clock.Since(began), err)
	leave(err)
	r.applied.record(d, err)
	return err
}

// applied holds what drivers have said of deliveries that only wait (delivery.PendingError), by the names
// of instance and cluster. It is in memory, as it only saves applying once more.
type applied struct {
	mu   sync.Mutex
	said map[string]map[string]string
}

// of returns what was said last of a delivery that is about to be made.
func (a *applied) of(d delivery.Delivery) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.said == nil {
		a.said = map[string]map[string]string{}
	}
	if a.said[d.Instance.Name] == nil {
		a.said[d.Instance.Name] = map[string]string{}
	}
	return a.said[d.Instance.Name][d.Placement.Cluster]
}

// record keeps what was said of a delivery, unless the instance was forgotten since it began.
func (a *applied) record(d delivery.Delivery, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	on, ok := a.said[d.Instance.Name]
	if pending := (*delivery.PendingError)(nil); errors.As(err, &pending) && pending.Applied != "" {
		if ok {
			on[d.Placement.Cluster] = pending.Applied
		}
		return
	}
	if delete(on, d.Placement.Cluster); len(on) == 0 {
		delete(a.said, d.Instance.Name)
	}
}

// forget drops what is known of an instance, because something that was delivered has changed.
func (a *applied) forget(instance string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.said, instance)
}

// driver returns the driver of a delivery, and its name. If the cluster is not in the inventory, it
// is the one by which the instance has something outside of the cluster; otherwise the default driver, whose error
// explains the problem. For a cluster that
// does not answer it returns *unreachableError, so that no worker waits for it; the inventory wakes
// the instances there when it answers again. A removal from a forsaken cluster asks only the others.
func (r *instanceReconciler) driver(s *scope, d delivery.Delivery) (name string, driver delivery.Driver, err error) {
	cluster, removal := d.Placement.Cluster, d.State == nil
	name = cmp.Or(s.driverOutside(cluster), v1alpha1.DriverKube)
	if known := r.inventory.Snapshot().Cluster(cluster); known != nil {
		name = known.Driver
		if !known.Ready && !(removal && known.IsForsaken()) {
			return name, nil, &unreachableError{cluster, known.Unready}
		}
	}
	if driver, ok := r.drivers[name]; ok {
		return name, driver, nil
	}
	return name, nil, fmt.Errorf("member cluster %s: this Sluice has no driver %q", cluster, name)
}

// unreachableError means that a cluster was not tried because it does not answer.
type unreachableError struct{ cluster, why string }

func (e *unreachableError) Error() string { return e.cluster + " does not answer: " + e.why }

// describe returns a joined error on one line.
func describe(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// allPending reports whether each of the joined errors is a *PendingError.
func allPending(err error) bool {
	return all(err, func(err error) bool { return is[*delivery.PendingError](err) || is[*member.BusyError](err) })
}

// allBusy reports whether each of the joined errors is a *member.BusyError: the instance is
// woken when there is a place.
func allBusy(err error) bool { return err != nil && all(err, is[*member.BusyError]) }

// allUnreachable reports whether each of the joined errors is an *unreachableError.
func allUnreachable(err error) bool { return err != nil && all(err, is[*unreachableError]) }

func all(err error, holds func(error) bool) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { // the joined error itself
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !all(err, holds) })
	}
	return holds(err)
}

func is[T error](err error) bool {
	var one T
	return errors.As(err, &one)
}

// on returns placements with only the names of the clusters, for removals.
func on(names []string) []v1alpha1.Placement {
	var placements []v1alpha1.Placement
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		placements = append(placements, v1alpha1.Placement{Cluster: name})
	}
	return placements
}
