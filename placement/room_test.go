package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/placement/placementtest"
)

// TestRoom: as many orders fit as can be placed and reserved one after the other.
func TestRoom(t *testing.T) {
	inventory := NewInventory()
	for _, row := range []placementtest.Cluster{
		{Name: "large", Region: "eu", Has: placementtest.Quantities("cpu=10,memory=100Gi,pods=110")},
		{Name: "small", Region: "eu", Has: placementtest.Quantities("cpu=5,memory=8Gi,pods=110"), Foreign: placementtest.Quantities("cpu=1")},
		{Name: "full", Region: "eu", Has: placementtest.Quantities("cpu=1,memory=8Gi,pods=110")},
		{Name: "cordoned", Region: "eu", Has: placementtest.Quantities("cpu=50,memory=100Gi,pods=110"), Cordoned: true},
		{Name: "silent", Region: "eu", Has: placementtest.Quantities("cpu=50,memory=100Gi,pods=110"), Unreachable: "no answer"},
	} {
		inventory.UpsertCluster(ClusterOf(row.MemberCluster(), time.Time{}))
	}
	cores := func(n int64) Resources { return Resources{corev1.ResourceCPU: 1000 * n} }
	for name, row := range map[string]struct {
		request  Request
		orders   int
		atLeast  bool
		clusters int
	}{
		"by cores":          {Request{Resources: cores(2)}, 5 + 2, false, 2},
		"by memory":         {Request{Resources: Resources{corev1.ResourceCPU: 1, corev1.ResourceMemory: 5 << 30}}, 20 + 1 + 1, false, 3},
		"on two clusters":   {Request{Resources: cores(2), Clusters: 2}, 2, false, 2},
		"on three":          {Request{Resources: cores(2), Clusters: 3}, 0, false, 2},
		"more than any has": {Request{Resources: cores(11)}, 0, false, 0},
		"nothing":           {Request{}, 1, true, 3},
		"none of a kind":    {Request{Resources: Resources{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 0}}, 5 + 2, false, 2},
		"countless ones":    {Request{Resources: Resources{corev1.ResourceMemory: 1}}, MaxOrders, true, 3},
		"divided":           {Request{Resources: cores(2), Replicas: 3, Clusters: 2}, 1, true, 2},
		"spread":            {Request{Resources: cores(1), Clusters: 1, Spread: &Spread{By: []string{"topology.kubernetes.io/region"}}}, 1, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			room := inventory.Snapshot().Room(row.request)
			if room.Orders != row.orders || room.AtLeast != row.atLeast || room.Clusters != row.clusters {
				t.Errorf("got %+v, want %d on %d clusters, at least: %t", room, row.orders, row.clusters, row.atLeast)
			}
			if (room.Why == "") != (row.orders > 0) {
				t.Errorf("it says %q", room.Why)
			}
			fork, placed := inventory.Fork(), 0
			for ; placed <= min(row.orders, 100); placed++ {
				r := row.request
				r.ID = fmt.Sprintf("order-%d", placed)
				d, err := Place(r, fork.Snapshot())
				if err != nil {
					break
				}
				held := map[string]Resources{}
				for _, p := range d.Placements {
					held[p.Cluster] = r.on(int64(max(p.Replicas, 1)))
				}
				fork.Reserve(Holding{Instance: r.ID, Held: held})
			}
			if placed != row.orders && !(row.atLeast && placed > min(row.orders, 100)) {
				t.Errorf("%d could be placed", placed)
			}
		})
	}
}

// TestThePriceOfRoom: of the cheapest clusters that fit, if they can be compared.
func TestThePriceOfRoom(t *testing.T) {
	inventory := NewInventory()
	add := func(name, currency, perCore string) {
		row := placementtest.Cluster{Name: name, Has: placementtest.Quantities("cpu=10,memory=100Gi,pods=110"), Currency: currency}
		if currency != "" {
			row.Prices = placementtest.Quantities("cpu=" + perCore)
		}
		inventory.UpsertCluster(ClusterOf(row.MemberCluster(), time.Time{}))
	}
	wants := func(want string, clusters ...int) {
		t.Helper()
		got := "none"
		if price := inventory.Snapshot().Room(Request{Resources: Resources{corev1.ResourceCPU: 2000}, Clusters: slices.Max(append(clusters, 1))}).Price; price != nil {
			got = price.String()
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	add("free", "", "")
	wants("none")
	add("dear", "EUR", "0.03")
	wants("0.06 EUR/h")
	add("cheap", "EUR", "0.01")
	wants("0.02 EUR/h")
	wants("0.04 EUR/h", 2) // on two clusters
	add("other", "USD", "0.001")
	wants("none")
}

// TestThePriceOfRoomForOne: of all clusters that one order comes to, if all have a price in one currency.
func TestThePriceOfRoomForOne(t *testing.T) {
	for currencies, want := range map[string]string{"ee": "0.06 EUR/h", "e$": "none", "$e": "none", "e-": "none", "-e": "none", "--": "none", "ee-": "none", "e-e": "none", "-ee": "none", "e$$": "none"} {
		inventory := NewInventory()
		for i, sign := range currencies {
			row := placementtest.Cluster{Name: fmt.Sprint("c", i), Region: fmt.Sprint("r", i), Has: placementtest.Quantities(fmt.Sprintf("cpu=%d,memory=100Gi,pods=110", 40-10*i))}
			if row.Currency = map[rune]string{'e': "EUR", '$': "USD"}[sign]; row.Currency != "" {
				row.Prices = placementtest.Quantities("cpu=0.03")
			}
			inventory.UpsertCluster(ClusterOf(row.MemberCluster(), time.Time{}))
		}
		r := Request{Resources: Resources{corev1.ResourceCPU: 1000}, Clusters: len(currencies), Spread: &Spread{By: []string{"topology.kubernetes.io/region"}}}
		got := "none"
		if price := inventory.Snapshot().Room(r).Price; price != nil {
			got = price.String()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", currencies, got, want)
		}
	}
}
