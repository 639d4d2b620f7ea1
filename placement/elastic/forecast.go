package elastic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/external"
	"github.com/sluice-dev/sluice/placement/replay"
)

// Orders that are expected are placed on a copy of the inventory after everything that waits, so a cluster is made for
// them by the same trial. A cluster that is idle is kept as long as one of them fits nowhere without it. Nothing is
// reserved: whoever orders first gets the room.

// mostExpected is the greatest number of orders that one policy expects: the first ones. Each pass places them.
const mostExpected = 256

// expectations are the orders that a policy expects.
type expectations struct {
	external.Forecast
	orders []placement.Request
	until  time.Time
	// unusable says of each of the others why it is not expected.
	unusable []string
	// spare is the inventory without the clusters that are given back in this pass, and nowhere the number of
	// expected orders that fit nowhere in it.
	spare   *placement.Inventory
	nowhere int
}

// expectations returns the orders that come within the time for which the policy looks ahead. An order is expected
// until its time: then it waits, or has been placed, or does not come.
func (e *Controller) expectations(p *placement.Policy) *expectations {
	x := &expectations{}
	if e.Forecast == nil || p.Elastic.AheadSeconds == 0 {
		return x
	}
	x.Forecast = e.Forecast()
	now, plans, snapshot := e.Clock.Now(), e.Catalog.Snapshot(), e.Inventory.Snapshot()
	x.until = now.Add(time.Duration(p.Elastic.AheadSeconds) * time.Second)
	booked := slices.Clone(x.Orders)
	slices.SortStableFunc(booked, func(a, b replay.Booked) int { return cmp.Compare(a.At, b.At) })
	for i := range booked {
		order := &booked[i]
		at := x.At.Add(time.Duration(order.At))
		if !at.After(now) || at.After(x.until) || !p.Concerns(order.Consumer) {
			continue
		}
		if len(x.orders) == mostExpected {
			x.unusable = append(x.unusable, fmt.Sprintf("only the first %d are looked at", mostExpected))
			break
		}
		request, err := order.Request(plans)
		if err == nil && request.Shape != nil {
			err = fmt.Errorf("plan %s makes a cluster of its own", order.Plan)
		}
		if err != nil {
			x.unusable = append(x.unusable, fmt.Sprintf("%s is not expected: %v", order.ID, err))
			continue
		}
		request = snapshot.Govern(request, order.Consumer)
		request.At = now
		x.orders = append(x.orders, request)
	}
	if len(x.orders) > 0 {
		x.spare = e.Inventory.Fork()
		x.nowhere = x.unplaced(x.spare)
	}
	return x
}

// unplaced returns how many of the expected orders fit nowhere.
func (x *expectations) unplaced(inventory *placement.Inventory) (n int) {
	fork := inventory.Fork()
	for _, r := range x.orders {
		if _, err := fork.Place(r); err != nil {
			n++
		}
	}
	return n
}

// need reports whether an expected order fits nowhere without a cluster. If not, the cluster is not counted on any more.
func (x *expectations) need(cluster string) bool {
	if x.spare == nil {
		return false
	}
	without := x.spare.Fork()
	without.DeleteCluster(cluster)
	if x.unplaced(without) > x.nowhere {
		return true
	}
	x.spare = without
	return false
}

// explain writes to the policy what has come of the forecast.
func (e *Controller) explain(ctx context.Context, t *template, x *expectations, made *demand, hindrance string) error {
	if e.Forecast == nil || t.Elastic.AheadSeconds == 0 {
		return nil
	}
	state, reason := metav1.ConditionTrue, "Used"
	message := fmt.Sprintf("orders expected within %s: %d; %d fit, clusters are made for %d, %d fit nowhere", time.Duration(t.Elastic.AheadSeconds)*time.Second,
		len(x.orders), made.fit, made.come, len(x.orders)-made.fit-made.come)
	if hindrance != "" {
		message += "; " + hindrance
	}
	if len(x.unusable) > 0 {
		message += "; " + x.unusable[0]
	}
	if more := len(x.unusable) - 1; more > 0 {
		message += fmt.Sprintf(", and %d more like this", more)
	}
	if x.Problem != nil {
		state, reason = metav1.ConditionFalse, "NoForecast"
		message += "; " + x.Problem.Error()
	}
	policy := &v1alpha1.PlacementPolicy{}
	if err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: t.Name}, policy); err != nil {
		return fmt.Errorf("read the policy: %w", err)
	}
	before := client.MergeFromWithOptions(policy.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if !v1alpha1.SetCondition(&policy.Status.Conditions, policy.Generation, v1alpha1.ConditionForecast, state, reason, message) {
		return nil
	}
	if err := e.Client.Status().Patch(ctx, policy, before); err != nil {
		return fmt.Errorf("write what has come of the forecast: %w", err)
	}
	return nil
}
