package placement

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Of more scarce resources than are looked at, those that an order asks for count first, then those that most orders
// hold, and then the first by name. Cores, memory and public ports are not scarce.
func TestTheScarceResourcesThatMatter(t *testing.T) {
	kind := func(i int) corev1.ResourceName { return corev1.ResourceName(fmt.Sprintf("example.com/kind-%02d", i)) }
	has := Resources{corev1.ResourceCPU: 1000, corev1.ResourceMemory: 1 << 30, "sluice.dev/public-ports": 9, "pods": 110}
	for i := range mostScarce + 4 {
		has[kind(i)] = 8
	}
	inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: has}})
	for i, orders := range map[int]int{3: 1, 9: 2, 10: 1} {
		for n := range orders {
			inventory.Reserve(Holding{Instance: fmt.Sprintf("si-%d-%d", i, n), Held: map[string]Resources{"eu": {kind(i): 1}}})
		}
	}
	want := []corev1.ResourceName{kind(11), kind(9), kind(3), kind(10), kind(0), kind(1), kind(2), kind(4)}
	if got := inventory.Snapshot().scarce(Resources{kind(11): 1, kind(5): 0, corev1.ResourceCPU: 1}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What is free beyond what is asked for is a mean of all scarce kinds that an order asks for; where it asks for none, of
// cores and memory; and otherwise of what it asks for.
func TestSlackIsAMean(t *testing.T) {
	const a, b, c corev1.ResourceName = "example.com/a", "example.com/b", "example.com/c"
	fit := func(asks, has Resources) int32 {
		t.Helper()
		d, err := Place(Request{ID: "si", Resources: asks}, stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: has}}).Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		return d.Placements[0].Score
	}
	for _, row := range []struct{ asks, has, like, likeHas Resources }{
		{Resources{a: 1, b: 1, c: 1}, Resources{a: 8, b: 8, c: 8}, Resources{a: 1}, Resources{a: 8}},
		{Resources{a: 1, b: 1, c: 1}, Resources{a: 8, b: 1, c: 1}, Resources{a: 1}, Resources{a: 2}},
		{Resources{a: 1, b: 1}, Resources{a: 4, b: 1}, Resources{a: 1}, Resources{a: 2}},
		{Resources{"pods": 1}, Resources{"pods": 16}, Resources{"pods": 2}, Resources{"pods": 32}},
	} {
		if got, want := fit(row.asks, row.has), fit(row.like, row.likeHas); got != want {
			t.Errorf("%v of %v: %d, and %v of %v: %d", row.asks, row.has, got, row.like, row.likeHas, want)
		}
	}
	if few, many := fit(Resources{"pods": 1}, Resources{"pods": 1}), fit(Resources{"pods": 1}, Resources{"pods": 1 << 20}); few <= many {
		t.Errorf("where all pods are taken: %d, where few are: %d", few, many)
	}
}

// Ratios of large amounts are as those of small ones.
func TestRatiosOfLargeAmounts(t *testing.T) {
	for _, row := range []struct{ amount, each, enough, want int64 }{
		{2, 1, 3, 96}, {2 << 40, 1 << 40, 3, 96}, {1 << 50, 1 << 52, 8, 32}, {1 << 60, 1, 1, 16 << 20}, {0, 1 << 30, 1 << 20, 16},
	} {
		if got := newRatio(row.amount, row.each).of(row.enough); got != row.want {
			t.Errorf("%d for each %d, with %d: %d, want %d", row.amount, row.each, row.enough, got, row.want)
		}
	}
}
