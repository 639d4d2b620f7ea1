package placement

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A page that clusters join and leave one by one, and on which they change, is as if it were made of them.
func TestPagesFollowTheirClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inventory, there := NewInventory(), map[string]*Cluster{}
		expression, err := compileExpression("cluster.region == 'eu' || claims.exists(c, c.value == 'DE')")
		if err != nil {
			t.Fatal(err)
		}
		for i := range pageRows { // the page is full
			name := fmt.Sprintf("cluster-%03d", i)
			there[name] = &Cluster{Name: name, Region: regions[i%len(regions)], Ready: i%3 > 0, Allocatable: Resources{corev1.ResourceCPU: int64(i)}}
			inventory.UpsertCluster(there[name])
		}
		claiming := *there["cluster-000"]
		claiming.Claims = []v1alpha1.Claim{{Name: "once", Value: "x"}} // which nobody claims any more
		inventory.UpsertCluster(&claiming)
		inventory.Snapshot()
		inventory.UpsertCluster(there["cluster-000"])
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			name := fmt.Sprintf("cluster-%03d", rapid.IntRange(0, 299).Draw(t, "cluster"))
			switch known := there[name]; {
			case known == nil:
				there[name] = drawCluster(t, name)
				inventory.UpsertCluster(there[name])
			case rapid.Bool().Draw(t, "changes"): // in one thing
				is, other := *known, drawCluster(t, name)
				other.Driver, other.Liqo = rapid.SampledFrom([]string{v1alpha1.DriverKube, v1alpha1.DriverCAPI, v1alpha1.DriverOSB}).Draw(t, "driver"), &v1alpha1.LiqoCluster{}
				other.Unguarded, other.StorageClasses, other.Consumers = "no rules", []string{"fast"}, []v1alpha1.ConsumerReference{{Platform: "cf"}}
				other.Exposure = &v1alpha1.ClusterExposure{Domain: "apps.example"}
				field := rapid.IntRange(0, reflect.TypeFor[Cluster]().NumField()-1).Draw(t, "field")
				reflect.ValueOf(&is).Elem().Field(field).Set(reflect.ValueOf(other).Elem().Field(field))
				there[name] = &is
				inventory.UpsertCluster(&is)
			default:
				inventory.DeleteCluster(name)
				delete(there, name)
			}
			s := inventory.Snapshot()
			for _, p := range s.pages {
				made := newPage(p.clusters, inventory.columns, inventory.books)
				for i := range made.columns {
					if !reflect.DeepEqual(p.column(i), made.column(i)) {
						t.Fatalf("column %d is %v, want %v", i, p.column(i), made.column(i))
					}
				}
				if p.hash != made.hash || !reflect.DeepEqual(p.rowSets, made.rowSets) {
					t.Fatalf("the page has %+v, want %+v", p.rowSets, made.rowSets)
				}
				for row := range p.clusters {
					if !reflect.DeepEqual(p.holes != nil && p.holes[row] != nil, made.holes != nil && made.holes[row] != nil) {
						t.Fatalf("row %d has other holes", row)
					}
				}
				r := Request{Rules: make([]Rule, 1)}
				if got, want := expression.rows(p, p.all, r.facts()), expression.rows(made, made.all, r.facts()); got != want {
					t.Fatalf("the expression holds for %v, want %v", got, want)
				}
			}
		}
	})
}

// A cluster scores what its own numbers give, whatever page it is on.
func TestScoresOfClustersOnSeveralPages(t *testing.T) {
	inventory := NewInventory()
	for i := range pageRows + 9 {
		inventory.UpsertCluster(inRegion(fmt.Sprint("c", i), "", int64(1+i%7)))
	}
	s := inventory.Snapshot()
	for _, v := range Explain(Request{ID: "si", Resources: Resources{corev1.ResourceCPU: 1}, Weights: v1alpha1.ScoreWeights{Balance: 1}}, s) {
		has := s.Cluster(v.Cluster).Allocatable[corev1.ResourceCPU]
		if want := int32(100 * (has - 1) / has); v.Score != want || v.Scores.Balance != want {
			t.Errorf("%s has %d and scores %d, %d by balance, want %d", v.Cluster, has, v.Score, v.Scores.Balance, want)
		}
	}
}
