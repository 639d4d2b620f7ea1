package placement

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// SnapshotFromHub returns the inventory that the hub's MemberClusters and ServiceInstances
// describe, for callers that do not run the controllers. The reader must be live, not a cache.
func SnapshotFromHub(ctx context.Context, reader client.Reader, namespace string) (*Snapshot, error) {
	inventory := NewInventory()
	if err := recoverInventory(ctx, reader, namespace, inventory, time.Now()); err != nil {
		return nil, err
	}
	return inventory.Snapshot(), nil
}

// recoverInventory fills an inventory from the hub's statuses.
func recoverInventory(ctx context.Context, reader client.Reader, namespace string, inventory *Inventory, now time.Time) error {
	var policies v1alpha1.PlacementPolicyList
	if err := reader.List(ctx, &policies, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list placement policies: %w", err)
	}
	list, clusters := &v1alpha1.MemberClusterList{}, []*Cluster(nil)
	err := eachPage(ctx, reader, namespace, list, func() {
		for i := range list.Items {
			clusters = append(clusters, ClusterOf(&list.Items[i], now))
		}
	})
	if err != nil {
		return fmt.Errorf("list member clusters: %w", err)
	}
	instances, held := &v1alpha1.ServiceInstanceList{}, []Holding(nil)
	err = eachPage(ctx, reader, namespace, instances, func() {
		for i := range instances.Items {
			held = append(held, HoldingOf(&instances.Items[i]))
		}
	})
	if err != nil {
		return fmt.Errorf("list service instances: %w", err)
	}
	// Last, so that instances deleted between a failed attempt and its repetition hold nothing.
	inventory.SetPolicies(CompilePolicies(policies.Items))
	for _, c := range clusters {
		inventory.UpsertCluster(c)
	}
	inventory.ReserveAll(held)
	return nil
}

// recoveryPage is how many objects one list request returns at most.
const recoveryPage = 500

func eachPage(ctx context.Context, reader client.Reader, namespace string, list client.ObjectList, use func()) error {
	for next := ""; ; {
		if err := reader.List(ctx, list, client.InNamespace(namespace), client.Limit(recoveryPage), client.Continue(next)); err != nil {
			return err
		}
		use()
		if next = list.GetContinue(); next == "" {
			return nil
		}
		if err := meta.SetList(list, nil); err != nil { // a page must not be decoded over the one before
			return err
		}
	}
}

// wholeCache reads the manager's cache without pages, which it does not support, and without
// copying instances, of which there are many and which recovery only reads.
type wholeCache struct{ client.Reader }

// List ignores limits: it returns all objects at once.
func (c wholeCache) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	whole := []client.ListOption{client.InNamespace(asked.Namespace)}
	if _, many := list.(*v1alpha1.ServiceInstanceList); many {
		whole = append(whole, client.UnsafeDisableDeepCopy)
	}
	err := c.Reader.List(ctx, list, whole...)
	list.SetContinue("") // the cache puts a text there that says it does not support it
	return err
}

// recovery fills the inventory once, before a replica first uses it after it became the leader.
type recovery struct {
	// reader is live, because a cache may lag behind the last leader's reservations; it is the
	// cache if there is never another replica.
	reader    client.Reader
	namespace string
	inventory *Inventory
	clock     clock.PassiveClock

	mu   sync.Mutex
	done bool
	took time.Duration
}

// ensure returns when the inventory is filled; later calls cost nothing.
func (r *recovery) ensure(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return nil
	}
	start := r.clock.Now()
	if err := recoverInventory(ctx, r.reader, r.namespace, r.inventory, start); err != nil {
		return fmt.Errorf("rebuild the inventory from the hub: %w", err)
	}
	r.done = true
	r.took = r.clock.Since(start)
	log.FromContext(ctx).Info("Rebuilt the inventory from the hub", "clusters", r.inventory.Snapshot().Len(), "took", r.took.String())
	return nil
}
