package placement

import (
	"maps"
	"sort"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Room is how many orders like a request clusters would take now.
type Room struct {
	// Orders that fit beside one another, at most MaxOrders. AtLeast says that more may fit: because of MaxOrders, or
	// because how many depends on how they are divided over the clusters.
	Orders  int
	AtLeast bool
	// Clusters that would take one.
	Clusters int
	// Price of one on the cheapest of these clusters; nil if none has a price list, or if they differ in currency.
	Price *Price
	// Why no order fits, as consumers are told; empty if one does.
	Why string
}

// MaxOrders is the largest count of a Room.
const MaxOrders = 1_000_000

// Room returns how many orders like a request fit. It counts by what is free on each cluster, as the filters of one
// order do. Fragments on nodes are looked at for one order only, so that the last few may not fit.
func (s *Snapshot) Room(r Request) Room {
	room := s.room(r)
	if room.Orders == 0 {
		_, err := Place(r, s)
		if none, ok := AsUnplaceable(err); ok {
			room.Why = none.ForConsumer()
		}
	}
	return room
}

func (s *Snapshot) room(r Request) Room {
	if r.denied(s) != "" {
		return Room{}
	}
	if len(r.Components) > 0 || r.Replicas > 0 || r.Spread != nil {
		return s.roomForOne(r)
	}
	e := evaluate(r, s)
	defer e.release()
	room, needs := Room{}, maps.Clone(r.on(1))
	limits := 0
	for name, needed := range needs {
		if _, class := v1alpha1.StorageClassOf(name); needed <= 0 || class {
			delete(needs, name)
			continue
		}
		limits++
	}
	var counts []int
	mixed, instances := false, s.columnOf(v1alpha1.ResourceInstances)
	for i, p := range e.pages {
		for row := range e.fits[i].rows() {
			count := MaxOrders
			for name, needed := range needs {
				count = int(min(int64(count), max(p.column(s.columnOf(name)).free[row], 0)/needed))
			}
			if r.Upstream != nil {
				market, reserved := r.Upstream.market(p, row, instances)
				if left, bounded := market.left(reserved); bounded {
					count = int(min(int64(count), left))
				}
			}
			counts = append(counts, max(count, 1)) // the filters let one in
			price := e.scorer.tariff.priceOf(position{page: p, row: row})
			switch {
			case price == nil || mixed:
			case room.Price == nil || price.Currency == room.Price.Currency && price.NanoPerHour < room.Price.NanoPerHour:
				room.Price = price
			case price.Currency != room.Price.Currency:
				mixed = true
			}
		}
	}
	if mixed {
		room.Price = nil
	}
	room.Clusters, room.Orders = len(counts), ordersOn(counts, r.ClusterCount())
	room.Price = room.Price.times(int64(r.ClusterCount()))
	if limits == 0 && room.Orders > 0 {
		room.Orders, room.AtLeast = 1, true
	}
	room.AtLeast = room.AtLeast || room.Orders == MaxOrders
	return room
}

// roomForOne asks whether one order fits, by placing it.
func (s *Snapshot) roomForOne(r Request) Room {
	d, err := Place(r, s)
	if err != nil {
		return Room{}
	}
	prices := make([]*Price, len(d.Placements))
	for i := range d.Placements {
		prices[i] = d.Placements[i].Price
	}
	return Room{Orders: 1, AtLeast: true, Clusters: len(d.Placements), Price: sumOf(prices...)}
}

// ordersOn returns how many orders fit that need each distinct clusters, which take so many each: the most for which
// the clusters together have the places, of which an order takes one at most on each.
func ordersOn(counts []int, each int) int {
	if len(counts) < each {
		return 0
	}
	return min(MaxOrders, sort.Search(MaxOrders, func(fewer int) bool {
		orders, places := fewer+1, 0
		for _, count := range counts {
			places += min(count, orders)
		}
		return places < orders*each
	}))
}
