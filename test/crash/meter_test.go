//go:build faults

package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// meter measures what instances have, without Sluice's usage and contracts. It looks at the resources of the hub whenever
// they change: what is delivered, and when the deletion was asked for, which the hub's API server says. When a delivery ended is
// in its event, which a subscriber has got.
type meter struct {
	mu sync.Mutex
	// delivered are the states of instances after a delivery, by the number of its event.
	delivered map[types.UID]map[int64]*v1alpha1.DeliveredState
	// deleted are the times at which the deletion of instances was asked for.
	deleted map[types.UID]time.Time
}

// period is a time during which an instance had the same, in whole seconds, without the one in which it ends.
type period struct {
	id       string // of the instance, as its platform chose it
	uid      types.UID
	from, to time.Time
	has      *v1alpha1.DeliveredState
}

// startMeter returns a meter that looks until ctx ends.
func (b *bed) startMeter(ctx context.Context) *meter {
	m := &meter{delivered: map[types.UID]map[int64]*v1alpha1.DeliveredState{}, deleted: map[types.UID]time.Time{}}
	go func() { _ = until(ctx, func(ctx context.Context) error { return m.follow(ctx, b.server) }) }()
	return m
}

// errHubGone means that the process whose hub was watched has ended.
var errHubGone = errors.New("the hub is gone")

// follow looks at each instance that there is, and at each change, until the hub goes, which is an error.
func (m *meter) follow(ctx context.Context, s *server) error {
	hub, err := s.hubFor(0)
	if err != nil {
		return err
	}
	changes, err := hub.Watch(ctx, &v1alpha1.ServiceInstanceList{}, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		i, is := change.Object.(*v1alpha1.ServiceInstance)
		if !is {
			return fmt.Errorf("watch instances: %v", change.Object)
		}
		m.look(i)
	}
	return errHubGone
}

// look notes what an instance has.
func (m *meter) look(i *v1alpha1.ServiceInstance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !i.DeletionTimestamp.IsZero() {
		m.deleted[i.UID] = i.DeletionTimestamp.Time
	}
	for _, e := range slices.Backward(i.Status.Events) {
		if isDelivery(e) && i.Status.Delivered != nil {
			if m.delivered[i.UID] == nil {
				m.delivered[i.UID] = map[int64]*v1alpha1.DeliveredState{}
			}
			m.delivered[i.UID][e.Sequence] = i.Status.Delivered.DeepCopy()
			return
		}
	}
}

// isDelivery reports whether, by an event, an instance has what is delivered from then on.
func isDelivery(e v1alpha1.Event) bool {
	return e.Type == v1alpha1.EventDelivered || e.Type == v1alpha1.EventMoved
}

// periods returns what instances had, one after the other, by the events that a subscriber got: from the second in which
// Delivered or Moved happened to that of the next of these, or to that in which the deletion was asked for. So an instance that
// moves is on the clusters of the former delivery until the second of Moved, and one that waits or fails has nothing.
func (m *meter) periods(events []event) ([]period, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []period
	open := map[types.UID]period{}
	end := func(uid types.UID, at time.Time) {
		if p, isOpen := open[uid]; isOpen {
			p.to = at.Truncate(time.Second)
			all = append(all, p)
			delete(open, uid)
		}
	}
	for _, e := range events {
		deleted, isDeleted := m.deleted[e.UID]
		switch {
		case isDelivery(e.Event):
			has := m.delivered[e.UID][e.Sequence]
			if has == nil || !slices.Equal(e.Clusters, has.Decision.Clusters()) {
				return nil, fmt.Errorf("the hub was never seen with what is delivered by %s", e.text)
			}
			end(e.UID, e.At.Time)
			open[e.UID] = period{id: e.InstanceID, uid: e.UID, from: e.At.Truncate(time.Second), has: has}
		case e.Type == v1alpha1.EventOrdered && e.Operation == v1alpha1.OperationDeprovision:
			if !isDeleted {
				return nil, fmt.Errorf("the hub was never seen with the deletion of %s", e.text)
			}
			end(e.UID, deleted)
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("by their events, %d instances are there still", len(open))
	}
	slices.SortStableFunc(all, func(a, b period) int { return cmp.Or(cmp.Compare(a.id, b.id), a.from.Compare(b.from)) })
	return all, nil
}
