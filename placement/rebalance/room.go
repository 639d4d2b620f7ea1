package rebalance

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/replay"
)

// mostSupposed is how many moves are looked for that no policy allows.
const mostSupposed = 8

// Room returns the fewest moves that would make room for a request that cannot be placed, and whether the policies allow
// them; nil if none would. The reader must be live, not a cache.
func Room(ctx context.Context, reader client.Reader, namespace string, plans *catalog.Snapshot, request placement.Request, now time.Time) (room *v1alpha1.Preemption, allowed bool, err error) {
	inventory := placement.NewInventory()
	if err := replay.Fill(ctx, reader, namespace, inventory, now); err != nil {
		return nil, false, err
	}
	settled, err := settledRequests(ctx, reader, namespace, plans, inventory, now, func(*v1alpha1.ServiceInstance) bool { return true })
	if err != nil {
		return nil, false, err
	}
	byName := make(map[string]placement.Request, len(settled))
	for _, r := range settled {
		byName[r.ID] = r
	}
	movable := func(instance string) (placement.Request, bool) { r, ok := byName[instance]; return r, ok }
	if room = placement.MakeRoom(request, inventory, movable); room != nil {
		return room, true, nil
	}
	supposed := &placement.Policy{MakeRoom: &v1alpha1.MakeRoom{AtMost: mostSupposed}}
	inventory.SetPolicies(append(slices.Clip(inventory.Snapshot().Policies()), supposed))
	return placement.MakeRoom(request, inventory, movable), false, nil
}
