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
