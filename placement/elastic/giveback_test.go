package elastic

import (
	"context"
	"testing"
	"time"
)

// After a start, the inventory has neither reservations nor policies until it is filled. Until then no cluster is given
// back and none is made.
func TestElasticWaitsForTheInventory(t *testing.T) {
	w := newElasticWorld(t, "cpu=100,sluice.dev/clusters=10", nil)
	w.park("a", 6)
	w.look()
	policies := w.inventory.Snapshot().Policies()
	w.inventory.SetPolicies(nil)
	w.restart()
	filled := make(chan struct{})
	w.elastic.Filled = filled
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.elastic.Start(ctx) }()
	for range 20 {
		w.clock.Step(every)
		time.Sleep(10 * time.Millisecond)
	}
	if n := w.deleted(); n != 0 {
		t.Errorf("%d clusters are given back before the inventory is filled", n)
	}
	w.inventory.SetPolicies(policies)
	close(filled)
	for deadline := time.Now().Add(10 * time.Second); w.elastic.Promise("a") == ""; {
		if time.Now().After(deadline) {
			t.Fatal("there is no pass after the inventory is filled")
		}
		w.clock.Step(every)
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(w.orders()); n != 1 || w.deleted() != 0 {
		t.Errorf("%d orders, %d of them deleted, want the one that there was", n, w.deleted())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	w.elastic.Filled = make(chan struct{})
	if err := w.elastic.Start(ctx); err != nil {
		t.Errorf("it ends before the inventory is filled: %v", err)
	}
}
