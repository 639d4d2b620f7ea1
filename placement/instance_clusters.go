package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
)

// each calls a driver's method for every placement, all at once, and joins the
// errors, which name their clusters, in the order of the placements.
func (r *instanceReconciler) each(ctx context.Context, s *scope, placements []v1alpha1.Placement, call func(Driver, context.Context, Delivery) error) error {
	failures := make([]error, len(placements))
	var calls sync.WaitGroup
	for i, p := range placements {
		calls.Go(func() { failures[i] = r.one(ctx, s, p, call) })
	}
	calls.Wait()
	return errors.Join(failures...)
}

// one calls a driver's method for a placement, if there is a place on its cluster.
func (r *instanceReconciler) one(ctx context.Context, s *scope, p v1alpha1.Placement, call func(Driver, context.Context, Delivery) error) error {
	driver, err := r.driver(s, p.Cluster)
	if err != nil {
		return err
	}
	leave, err := r.places.Enter(p.Cluster, s.Name)
	if err != nil {
		return err
	}
	err = call(driver, ctx, Delivery{Instance: s.ServiceInstance, Placement: p})
	leave(err)
	return err
}

// driver is the one that delivers to a cluster; to a cluster that is not in the
// inventory, the one of peerings where the instance has one with it, which has something on
// other clusters too, and else the default one, whose error says what is the matter. A cluster that
// does not answer is not tried, so that no worker waits for it; the inventory wakes
// the instances there when it answers again.
func (r *instanceReconciler) driver(s *scope, cluster string) (Driver, error) {
	name := v1alpha1.DriverKube
	if s.peeredWith(cluster) {
		name = v1alpha1.DriverLiqo
	}
	if known := r.inventory.Snapshot().Cluster(cluster); known != nil {
		name = known.Driver
		if !known.Ready {
			return nil, &unreachableError{cluster, known.Unready}
		}
	}
	if driver, ok := r.drivers[name]; ok {
		return driver, nil
	}
	return nil, fmt.Errorf("member cluster %s: this Sluice has no driver %q", cluster, name)
}

// peeredWith tells whether any placement of the instance on a cluster has a peering.
func (s *scope) peeredWith(cluster string) bool {
	var all []v1alpha1.Placement
	for _, d := range []*v1alpha1.Decision{s.Status.Decision, s.deliveredDecision()} {
		if d != nil {
			all = append(all, d.Placements...)
		}
	}
	for i := range s.Status.Left {
		all = append(all, s.Status.Left[i].Placement)
	}
	return slices.ContainsFunc(all, func(p v1alpha1.Placement) bool { return p.Cluster == cluster && p.Peering != nil })
}

// unreachableError says that a cluster was not tried because it does not answer.
type unreachableError struct{ cluster, why string }

func (e *unreachableError) Error() string { return e.cluster + " does not answer: " + e.why }

// describe is a joined error on one line.
func describe(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// allPending tells whether every one of the joined errors says that something is waited for.
func allPending(err error) bool {
	return all(err, func(err error) bool { return is[*PendingError](err) || is[*member.BusyError](err) })
}

// allBusy tells whether every one of the joined errors says that its cluster has no place
// now: the instance is woken when there is one.
func allBusy(err error) bool { return err != nil && all(err, is[*member.BusyError]) }

// allUnreachable tells whether every one of the joined errors is an *unreachableError.
func allUnreachable(err error) bool { return err != nil && all(err, is[*unreachableError]) }

func all(err error, holds func(error) bool) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the joined error itself
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !all(err, holds) })
	}
	return holds(err)
}

func is[T error](err error) bool {
	var one T
	return errors.As(err, &one)
}

// clusters are the names of a decision's clusters; a nil decision has none.
func clusters(d *v1alpha1.Decision) []string {
	if d == nil {
		return nil
	}
	var names []string
	for _, p := range d.Placements {
		names = append(names, p.Cluster)
	}
	return names
}

// without are the names that are in none of the others.
func without(names []string, others ...[]string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(others, func(other []string) bool { return slices.Contains(other, name) })
	})
}

// on are bare placements on the named clusters, for removals.
func on(names []string) []v1alpha1.Placement {
	var placements []v1alpha1.Placement
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		placements = append(placements, v1alpha1.Placement{Cluster: name})
	}
	return placements
}
