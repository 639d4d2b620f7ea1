package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/rebalance"
)

// The instance for which room is made writes that to its own status (Preemption) and then waits
// like any other that fits nowhere. If it goes, or finds another place, the entry goes with it.
// Its victims move as from a drained cluster. If a policy lets them move (MakeRoom), each goes to the
// cluster that the entry names, or stays. A victim of lower priority that fits nowhere else leaves all
// the same: it is delivered to its remaining clusters, or to none (Decision.Displaced), and is
// placed again as soon as there is room.

// roomPatience is how long an instance waits before moves that may make room for it are looked for again: what they
// depend on is on all clusters, of which no change wakes it.
const roomPatience = 30 * time.Second

// preempt computes what room has to be made for an instance that cannot be placed, and reports
// whether that is new: by moves of others, if policies allow them, and else by displacing others. A preemption that
// has begun continues while it still helps.
func (r *instanceReconciler) preempt(ctx context.Context, s *scope, request placement.Request) (news bool) {
	snapshot, before := r.inventory.Snapshot(), s.Status.Preemption
	movable := r.movable(ctx, s)
	if snapshot.Policies().MakeRoom() > 0 {
		s.lookAgain(roomPatience)
	}
	switch {
	case before == nil:
	case before.Moves() && placement.MovesStand(request, r.inventory, before, movable),
		!before.Moves() && snapshot.Stands(request, before):
		return false
	}
	found := placement.MakeRoom(request, r.inventory, movable)
	if found == nil {
		found = placement.Preempt(request, snapshot)
	}
	return s.recordPreemption(found)
}

// movable returns the requests of instances that may move.
func (r *instanceReconciler) movable(ctx context.Context, s *scope) placement.Movable {
	snapshot := r.inventory.Snapshot()
	return func(name string) (placement.Request, bool) {
		instance := &v1alpha1.ServiceInstance{}
		if err := r.hub.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, instance); err != nil {
			return placement.Request{}, false
		}
		return rebalance.Settled(instance, r.plan, snapshot, s.now)
	}
}

// withRoom adds the preemption to the reason why an instance waits.
func withRoom(why string, p *v1alpha1.Preemption) string {
	switch {
	case p == nil:
		return why
	case p.Moves():
		return fmt.Sprintf("%s; instances are moving away from %s to make room (%d)", why, p.Cluster, len(p.Victims))
	}
	return fmt.Sprintf("%s; instances of lower priority are leaving %s to make room (%d)", why, strings.Join(p.Clusters(), " and "), len(p.AllVictims()))
}

// makesWay returns the clusters that the instance moves to for another one, and that one; none if it has to
// leave for another reason as well.
func (s *scope) makesWay(snapshot *placement.Snapshot, due []v1alpha1.Departure) (by string, to []string) {
	for _, d := range due {
		instance, p := snapshot.Preempting(s.Name, d.Cluster)
		if p == nil || !p.Moves() || d.Reason != s.yields(snapshot, d.Cluster) {
			return "", nil
		}
		by, to = instance, append(to, p.On(d.Cluster).Victim(s.Name).To...)
	}
	return by, to
}

// remain ends a move that would have made room for another instance: what it was to come to does not take it. The
// other one is woken, to look for another way.
func (r *instanceReconciler) remain(s *scope, by string) (ctrl.Result, error) {
	r.reserve(s) // and it no longer waits
	r.inventory.Wake(by)
	return ctrl.Result{}, nil
}

// yielded returns the departures from clusters that the instance has to leave for another instance, wherever it comes to.
func (r *instanceReconciler) yielded(s *scope, due []v1alpha1.Departure) []v1alpha1.Departure {
	snapshot := r.inventory.Snapshot()
	return slices.DeleteFunc(slices.Clone(due), func(d v1alpha1.Departure) bool {
		_, p := snapshot.Preempting(s.Name, d.Cluster)
		return p == nil || p.Moves()
	})
}

// displace makes the instance leave those of the clusters that are due on which it yields to another instance, although no
// other cluster has room for it. It stays on the others, as it would without the other instance.
func (r *instanceReconciler) displace(ctx context.Context, s *scope, due []v1alpha1.Departure) (ctrl.Result, error) {
	due = r.yielded(s, due)
	decided := s.Status.DeliveredDecision().DeepCopy()
	decided.Preemption = nil
	for _, p := range decided.Placements {
		if i := slices.Index(named(due), p.Cluster); i >= 0 {
			decided.Displaced = append(decided.Displaced, due[i])
		}
	}
	decided.Placements = slices.DeleteFunc(decided.Placements, func(p v1alpha1.Placement) bool {
		return slices.Contains(named(due), p.Cluster)
	})
	return r.adopt(ctx, s, decided, due)
}
