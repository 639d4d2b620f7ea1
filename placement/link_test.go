package placement

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestLinksThatConnect: components that talk to each other are on one cluster, or on two that Liqo can
// connect, and the placements say which are linked.
func TestLinksThatConnect(t *testing.T) {
	on := func(tier v1alpha1.Tier) func(string, *v1alpha1.LiqoCluster) Cluster {
		return func(name string, liqo *v1alpha1.LiqoCluster) Cluster {
			return Cluster{
				Name: name, Ready: true, AccessVerified: true, Liqo: liqo, Allocatable: Resources{corev1.ResourceCPU: 4000},
				Labels: map[string]string{v1alpha1.LabelTier: string(tier)},
			}
		}
	}
	edge, cloud := on(v1alpha1.TierEdge), on(v1alpha1.TierCloud)
	peerable := &v1alpha1.LiqoCluster{}
	web := Component{Name: "web", Tier: v1alpha1.TierEdge, Resources: cores(1)}
	db := Component{Name: "db", Tier: v1alpha1.TierCloud, Resources: cores(1)}
	log := Component{Name: "log", Tier: v1alpha1.TierCloud, Resources: cores(1)}
	for name, test := range map[string]struct {
		clusters []Cluster
		most     time.Duration
		want     string // empty means that it is placed
	}{
		"both with Liqo":              {clusters: []Cluster{edge("e", peerable), cloud("c", peerable)}, most: AnyLatency},
		"the only other one without":  {clusters: []Cluster{edge("e", peerable), cloud("c", nil)}, most: AnyLatency, want: "web and db need one cluster, or two with the driver liqo"},
		"another one with":            {clusters: []Cluster{edge("e", peerable), cloud("b", nil), cloud("c", peerable)}, most: AnyLatency},
		"one joined by invitation":    {clusters: []Cluster{edge("e", peerable), cloud("c", &v1alpha1.LiqoCluster{Joined: &v1alpha1.JoinedPeering{With: "e"}})}, most: AnyLatency, want: "has joined e by invitation"},
		"a latency that is not known": {clusters: []Cluster{edge("e", peerable), cloud("c", peerable)}, most: time.Millisecond, want: "web and db may be 1ms apart"},
	} {
		t.Run(name, func(t *testing.T) {
			inv := NewInventory()
			for _, c := range test.clusters {
				inv.UpsertCluster(&c)
			}
			r := Request{ID: "si", Components: []Component{web, db, log}, Links: []Link{{Between: [2]int{0, 1}, Most: test.most, Connects: true}}}
			d, err := inv.Place(r)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			linked := map[string][]v1alpha1.LinkedCluster{}
			for _, p := range d.API(1).Placements {
				linked[p.Cluster] = p.Linked
			}
			if want := []v1alpha1.LinkedCluster{{Cluster: "c", Links: []v1alpha1.ComponentLink{{Here: "web", There: "db"}}}}; !reflect.DeepEqual(linked["e"], want) {
				t.Errorf("e is linked to %v, want %v", linked["e"], want)
			}
			if want := []v1alpha1.LinkedCluster{{Cluster: "e", Links: []v1alpha1.ComponentLink{{Here: "db", There: "web"}}}}; !reflect.DeepEqual(linked["c"], want) {
				t.Errorf("c is linked to %v, want %v", linked["c"], want)
			}
		})
	}
}

// TestAComponentMovesAlone: when a component of a workload does not fit its cluster any more, it alone
// leaves that, unless it has volumes.
func TestAComponentMovesAlone(t *testing.T) {
	for _, moves := range []bool{true, false} {
		inv := NewInventory()
		for _, name := range []string{"a", "b"} {
			inv.UpsertCluster(&Cluster{
				Name: name, Ready: true, AccessVerified: true, Allocatable: Resources{corev1.ResourceCPU: 4000}, Labels: map[string]string{"zone": name},
			})
		}
		r := Request{ID: "si", Components: []Component{{Name: "web", Resources: cores(1), Moves: moves}, {Name: "db", Resources: cores(1)}}}
		in := func(zone string) labels.Selector { return labels.SelectorFromSet(labels.Set{"zone": zone}) }
		r.Components[0].Selector, r.Components[1].Selector = in("a"), in("a")
		r.ComponentClusters = map[string]string{"web": "a", "db": "a"}
		inv.Reserve(Holding{Instance: "si", Held: map[string]Resources{"a": cores(2)}})
		r.Components[0].Selector = in("b")
		d, err := inv.Place(r)
		if !moves {
			if err == nil || !strings.Contains(err.Error(), "component web fits nowhere") {
				t.Errorf("a component with volumes: %v %v", d, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Placements {
			if want := map[string]string{"a": "db", "b": "web"}[p.Cluster]; !reflect.DeepEqual(p.Components, []string{want}) {
				t.Errorf("%s has %v, want %s", p.Cluster, p.Components, want)
			}
		}
	}
}
