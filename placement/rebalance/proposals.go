package rebalance

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/replay"
)

// Proposals returns at most the given number of moves that gain at least the given number of
// points, in the order in which they can be made: each is computed with those before it made (see
// placement.Improve). The function of reports which instances to consider. The reader must be live,
// not a cache.
func Proposals(ctx context.Context, reader client.Reader, namespace string, plans *catalog.Snapshot, now time.Time,
	leastGain int32, most int, of func(*v1alpha1.ServiceInstance) bool,
) ([]placement.Proposal, error) {
	inventory := placement.NewInventory()
	if err := replay.Fill(ctx, reader, namespace, inventory, now); err != nil {
		return nil, err
	}
	requests, err := settledRequests(ctx, reader, namespace, plans, inventory, now, of)
	if err != nil {
		return nil, err
	}
	return placement.Improve(requests, inventory, leastGain, most), nil
}

// settledRequests returns the requests of the delivered instances without an operation under
// way.
func settledRequests(ctx context.Context, reader client.Reader, namespace string, plans *catalog.Snapshot, inventory *placement.Inventory,
	now time.Time, of func(*v1alpha1.ServiceInstance) bool,
) (requests []placement.Request, err error) {
	snapshot := inventory.Snapshot()
	err = pages.Each(ctx, reader, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		instance := o.(*v1alpha1.ServiceInstance)
		if !of(instance) {
			return nil
		}
		if request, settled := Settled(instance, plans.Plan, snapshot, now); settled {
			requests = append(requests, request)
		}
		return nil
	}, client.InNamespace(namespace))
	return requests, err
}

// Settled returns the request of an instance that may move now, with the clusters that it is on. It returns false if the
// instance is not delivered or has an operation under way; if its offering is no longer served; and for clusters and
// instances with volumes, which do not move, those with components, which move only together, and peered ones,
// whose pods would restart.
func Settled(instance *v1alpha1.ServiceInstance, plans func(serviceID, planID string) (*catalog.Plan, error), snapshot *placement.Snapshot, now time.Time) (placement.Request, bool) {
	if !instance.IsSettled() || instance.Status.IsPinned() {
		return placement.Request{}, false
	}
	state := &instance.Status.Delivered.State
	plan, err := plans(instance.Spec.ServiceID, state.PlanID)
	if err != nil {
		return placement.Request{}, false
	}
	if w := instance.Status.Delivered.Decision.Workload; w != nil {
		plan = plan.Running(w)
	}
	request, err := placement.NewRequest(instance.Name, plan, state.Raw())
	if err != nil || request.Shape != nil || request.Upstream != nil || request.Peering != nil || len(request.Components) > 0 {
		return placement.Request{}, false
	}
	request = snapshot.Govern(request, placement.ConsumerOf(instance))
	request.Current, request.Free, request.At = instance.Status.Delivered.Decision.Clusters(), true, now
	request.Sold = placement.SoldRules(&instance.Status)
	return request, true
}
