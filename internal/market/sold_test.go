package market

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// fakeInventory is the room that a test sets. The engine's own is tested in cmd/sluice and placement.
type fakeInventory struct {
	mu      sync.Mutex
	rooms   map[string]Room // by plan
	asked   []string        // platforms
	changed chan struct{}
}

func newFakeInventory() *fakeInventory {
	return &fakeInventory{rooms: map[string]Room{}, changed: make(chan struct{})}
}

func (f *fakeInventory) Rooms(plans []*catalog.Plan, platform string, _ time.Time) (rooms []Room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, platform)
	if f.rooms == nil {
		return nil
	}
	for _, p := range plans {
		rooms = append(rooms, f.rooms[p.ID])
	}
	return rooms
}

func (f *fakeInventory) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// set changes the room of a plan.
func (f *fakeInventory) set(plan string, room Room) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rooms[plan] = room
	close(f.changed)
	f.changed = make(chan struct{})
}

// sold is an offering in one line: its plans are <name>-small and <name>-large.
type sold struct {
	name, provider string
	// monthly costs of the small plan in EUR; the large one costs twice as much. Empty means none.
	monthly   string
	platforms []string
}

func (s sold) offering() v1alpha1.ServiceOffering {
	spec := &v1alpha1.ServiceOfferingSpec{ID: s.name + "-id", Name: s.name, Description: "A test", Bindable: true, Platforms: s.platforms, Tags: []string{"test"}}
	for i, size := range []string{"small", "large"} {
		p := v1alpha1.Plan{ID: s.name + "-" + size, Name: size, Description: "A test", Kind: v1alpha1.PlanKindResources,
			Resources: &v1alpha1.ResourcesPlan{Clusters: 1, Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}
		if s.provider != "" {
			p.Resources.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelProvider: s.provider}}
		}
		if s.monthly != "" {
			cost := resource.MustParse(s.monthly)
			for range i {
				cost.Add(cost)
			}
			p.Costs = []v1alpha1.Cost{{Unit: "Monthly", Amount: map[string]resource.Quantity{"usd": resource.MustParse("1000"), "eur": cost}}}
		}
		spec.Plans = append(spec.Plans, p)
	}
	return v1alpha1.ServiceOffering{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Status: v1alpha1.ServiceOfferingStatus{Accepted: spec}}
}

// clusters of the providers acme, in two regions, and rival.
func clusters() (all []v1alpha1.MemberCluster) {
	for name, where := range map[string][2]string{"a": {"acme", "eu-1"}, "b": {"acme", "eu-2"}, "c": {"rival", "us-1"}} {
		all = append(all, v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MemberClusterSpec{Provider: where[0], Region: where[1]}})
	}
	return all
}

// sell makes offerings the catalog.
func sell(t testing.TB, c *catalog.Catalog, all ...sold) {
	t.Helper()
	var offerings []v1alpha1.ServiceOffering
	for _, s := range all {
		offerings = append(offerings, s.offering())
	}
	snapshot, err := catalog.Build(offerings, clusters(), nil, c.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	c.Replace(snapshot)
}

// many are n offerings, with two plans each.
func many(n int) (all []sold) {
	for i := range n {
		all = append(all, sold{name: fmt.Sprintf("offering-%05d", i), provider: []string{"acme", "rival"}[i%2], monthly: fmt.Sprint(1 + i%97)})
	}
	return all
}
