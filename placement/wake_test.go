package placement

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Requests that differ in a selector alone are woken each by the cluster that it selects.
func TestWhoSelectsOtherClustersIsNotJudgedAlike(t *testing.T) {
	for _, region := range []string{"a", "b"} {
		inventory, woken := watched()
		for _, of := range []string{"a", "b"} {
			r := Request{ID: "si-" + of, Resources: Resources{corev1.ResourceCPU: 1}, Selector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: of})}
			if _, err := inventory.Place(r); err == nil {
				t.Fatal("it is placed where there is no cluster")
			}
		}
		inventory.UpsertCluster(inRegion("c", region, 4))
		if got := woken(); !maps.Equal(got, map[string]int{"si-" + region: 1}) {
			t.Errorf("a cluster of region %s comes, and woken are %v", region, got)
		}
	}
}

// A rise of one resource wakes who waits for it, whatever becomes of the others.
func TestWhoWaitsForOneOfSeveralResourcesIsWoken(t *testing.T) {
	eu := func(memory, cpu int64) *Cluster {
		has := Resources{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}
		for i := range 6 { // which stay as they are
			has[corev1.ResourceName(fmt.Sprint("example.com/", i))] = 1
		}
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: has}
	}
	for range 5 { // maps have no order
		inventory, woken := watched(eu(1, 4))
		if _, err := inventory.Place(Request{ID: "si", Resources: Resources{corev1.ResourceMemory: 2}}); err == nil {
			t.Fatal("it fits at once")
		}
		if inventory.UpsertCluster(eu(2, 3)); woken()["si"] != 1 {
			t.Fatal("there is enough memory, and it slept on")
		}
	}
}

// Who waits for a cluster in each group is woken when a cluster's labels change, and by no other change of one that
// does not take it.
func TestWhoNeedsEachGroupSleepsOnIfTheyAreTheSame(t *testing.T) {
	b1 := func(region string, ready bool) *Cluster {
		c := inRegion("b1", region, 0)
		c.Ready = ready
		return c
	}
	inventory, woken := watched(inRegion("a1", "a", 4), b1("b", true))
	r := Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Spread: &Spread{By: []string{v1alpha1.LabelRegion}, Each: true}}
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed in one group")
	}
	if inventory.UpsertCluster(b1("b", false)); woken()["si"] != 0 {
		t.Error("it is woken though the groups are the same")
	}
	if inventory.UpsertCluster(b1("a", false)); woken()["si"] == 0 {
		t.Error("there is one group less, and it slept on")
	}
}

// Room that is no longer made for one wakes another one that waits for it.
func TestWhoWaitsForRoomThatIsNoLongerMadeIsWoken(t *testing.T) {
	inventory, woken := watched(inRegion("eu", "eu", 4))
	inventory.Preempt("si-1", &v1alpha1.Preemption{Cluster: "eu"})
	if _, err := inventory.Place(Request{ID: "si-2", Resources: Resources{corev1.ResourceCPU: 1}}); err == nil {
		t.Fatal("it takes the room that is made for another one")
	}
	if inventory.Preempt("si-1", nil); woken()["si-2"] != 1 {
		t.Error("it slept on")
	}
}

// A consumer with two clusters has to name one; once one of them has gone, there is no need to.
func TestWhoseConsumerHasOneClusterLeftIsWoken(t *testing.T) {
	own := func(name string) *Cluster {
		return &Cluster{
			Name: name, Driver: v1alpha1.DriverLiqo, Ready: true, AccessVerified: true, Allocatable: cores(8), Liqo: &v1alpha1.LiqoCluster{Modules: v1alpha1.ModulesFor(true)},
			Consumers: []v1alpha1.ConsumerReference{{Platform: "cf"}},
		}
	}
	eu := own("eu")
	eu.Consumers = nil
	inventory, woken := watched(own("one"), own("other"), eu)
	r := inventory.Snapshot().Govern(Request{ID: "si", Resources: cores(1), Peering: &Peering{PeeringPlan: v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork}}}, Consumer{Platform: "cf"})
	if _, err := inventory.Place(r); err == nil {
		t.Fatal("it is placed, though it names none of two")
	}
	if inventory.DeleteCluster("other"); woken()["si"] != 1 {
		t.Error("one is left, and it slept on")
	}
}
