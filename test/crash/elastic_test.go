//go:build faults

package crash

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Three instances that fit nowhere get one cluster, however often Sluice is killed while
// it is made; it grows for two more, and is given back once they are all gone, however
// often Sluice is killed then.
func TestOneClusterForWhatFitsNowhere(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	m := newMakers(ctx, t, stop)
	if err := m.operate(ctx, "policy", "apply", "-f", "testdata/elastic.yaml"); err != nil {
		t.Fatal(err)
	}
	var most atomic.Int64
	watched, end := context.WithCancel(ctx)
	defer end()
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
				most.Store(max(most.Load(), int64(m.management.Workloads())))
			}
		}
	}()
	var all []*instance
	provision := func(ids ...string) {
		var some []*instance
		for _, id := range ids {
			some = append(some, &instance{bed: m.bed, id: id, name: v1alpha1.InstanceName(platformName, id), plan: "small"})
		}
		all = append(all, some...)
		m.killedStep(ctx, t, fmt.Sprintf("provision %d", len(ids)), func(ctx context.Context) error {
			group, ctx := errgroup.WithContext(ctx)
			for _, i := range some {
				group.Go(func() error { return m.succeed(ctx, http.MethodPut, i.path(), async, i.body("small", 0)) })
			}
			return group.Wait()
		})
	}
	provision("one", "two", "three")
	m.step(ctx, t, "the cluster is delivered, so that it can grow", func(ctx context.Context) error {
		return m.withHub(ctx, func(hub client.Client) error {
			var orders v1alpha1.ServiceInstanceList
			if err := hub.List(ctx, &orders, client.InNamespace(namespace)); err != nil {
				return err
			}
			for i := range orders.Items {
				if !orders.Items[i].Status.IsFinished() {
					return fmt.Errorf("%s is not finished", orders.Items[i].Name)
				}
			}
			return nil
		})
	})
	provision("four", "five") // four fit on one worker
	m.step(ctx, t, "all are on it", func(ctx context.Context) error {
		return m.withHub(ctx, func(hub client.Client) error {
			var on []string
			for _, i := range all {
				seen := &v1alpha1.ServiceInstance{}
				if err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: i.name}, seen); err != nil {
					return err
				}
				for _, p := range seen.Status.Delivered.Decision.Placements {
					on = append(on, p.Cluster)
				}
			}
			if len(on) != len(all) || len(slices.Compact(on)) != 1 {
				return fmt.Errorf("they are on %v", on)
			}
			return nil
		})
	})
	m.step(ctx, t, "bind", func(ctx context.Context) error {
		return all[0].succeed(ctx, http.MethodPut, all[0].bindingPath("first"), async, map[string]any{"service_id": "stories", "plan_id": "small"})
	})
	m.killedStep(ctx, t, "deprovision them", func(ctx context.Context) error {
		group, removing := errgroup.WithContext(ctx)
		for _, i := range all {
			group.Go(func() error { return m.remove(removing, i.path(), i.query()) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		return until(ctx, m.left)
	})
	if most.Load() != 1 {
		t.Errorf("there were %d clusters at once, want one", most.Load())
	}
	t.Logf("killed %d times, after %d different writes", len(m.deaths), len(different(m.deaths)))
}
