package placement

import (
	"fmt"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// A page that clusters join and leave one by one is as if it were made of them.
func TestPagesFollowTheirClusters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inventory, there := NewInventory(), map[string]*Cluster{}
		expression, err := compileExpression("cluster.region == 'eu' || claims.exists(c, c.value == 'DE')")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 220 {
			name := fmt.Sprintf("cluster-%03d", i)
			there[name] = &Cluster{Name: name, Region: regions[i%len(regions)], Ready: i%3 > 0, Allocatable: Resources{corev1.ResourceCPU: int64(i)}}
			inventory.UpsertCluster(there[name])
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			name := fmt.Sprintf("cluster-%03d", rapid.IntRange(0, 299).Draw(t, "cluster"))
			if there[name] == nil {
				there[name] = drawCluster(t, name)
				inventory.UpsertCluster(there[name])
			} else {
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
