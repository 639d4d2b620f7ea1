package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/replay"
)

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
	inventory *placement.Inventory
	clock     clock.PassiveClock
	// held returns why the statuses of clusters do not show all that they carry; nil if they do. It may be nil.
	held func(context.Context) error
	// filled is called at the end; may be nil.
	filled func()

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
	if err := replay.Fill(ctx, r.reader, r.namespace, r.inventory, start); err != nil {
		return fmt.Errorf("rebuild the inventory from the hub: %w", err)
	}
	if r.held != nil {
		if err := r.held(ctx); err != nil {
			r.doubt(err)
		}
	}
	r.done = true
	if r.filled != nil {
		r.filled()
	}
	r.took = r.clock.Since(start)
	log.FromContext(ctx).Info("Rebuilt the inventory from the hub", "clusters", r.inventory.Snapshot().Len(), "took", r.took.String())
	return nil
}

// doubt makes the capacity of all clusters unknown, until they are read.
func (r *recovery) doubt(why error) {
	for _, c := range r.inventory.Snapshot().Clusters() {
		unread := *c
		unread.CapacityUnknown = why.Error()
		r.inventory.UpsertCluster(&unread)
	}
}
