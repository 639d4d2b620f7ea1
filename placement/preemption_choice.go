package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Victims on several clusters are found by Place itself: as if all victims up to a priority were gone everywhere, and by
// the cost of each cluster in victims, instead of by scores.

// priorities returns the priorities of all victims, the lowest first.
func (x *search) priorities() []int32 {
	all, mayLeave := map[int32]bool{}, map[string][]victim{}
	for _, p := range x.snapshot.pages {
		for _, c := range p.clusters {
			mayLeave[c.Name] = x.victims(c.Name)
			for _, v := range mayLeave[c.Name] {
				all[v.class.Value] = true
			}
		}
	}
	x.mayLeave = mayLeave
	return slices.Sorted(maps.Keys(all))
}

// upTo makes room by victims of at most a priority; nil if they are not enough.
func (x *search) upTo(highest int32) *v1alpha1.Preemption {
	given := map[string]Resources{}
	for cluster, victims := range x.mayLeave {
		given[cluster] = Resources{}
		for _, v := range victims {
			if v.class.Value <= highest {
				given[cluster].Add(v.Resources, 1)
			}
		}
	}
	asked := x.request.withoutPods()
	asked.burden = x.burden(highest)
	d, err := Place(asked, x.snapshot.with(given))
	if err != nil {
		return nil
	}
	var rooms []room
	for i := range d.Placements {
		needs := d.Placements[i].Reserved
		at, _ := x.snapshot.find(d.Placements[i].Cluster)
		c, lacks := x.cover(at, needs, x.held(at))
		if c == nil {
			continue // it has room
		}
		best, ok := c.within(lacks, highest)
		if !ok {
			return nil // too many would have to leave
		}
		rooms = append(rooms, room{position: at, cost: c.bestCost, victims: c.of(best), needs: needs})
	}
	slices.SortStableFunc(rooms, func(a, b room) int { return a.cost.compare(b.cost) })
	if rooms = x.used(rooms); len(x.request.Components) > 0 || x.request.Replicas > 0 {
		rooms = x.spared(rooms)
	}
	if len(rooms) == 0 {
		return nil
	}
	return x.preemption(rooms)
}

const (
	// burdenCounts is how many victims the burden of all clusters of a choice counts, as a power of two: 64 on each.
	burdenCounts = 13
	// unbearable is more than the burden of any cluster that can be vacated, and that of 64 clusters is less than staying.
	unbearable = 1 << 49
)

// burden returns the cost of clusters in victims of at most a priority: the least sum of their priorities, and then the
// least number, with which a cluster has room for a part of the request alone.
func (x *search) burden(highest int32) func(*Request, position) int64 {
	known := map[[2]string]int64{}
	return func(part *Request, at position) int64 {
		name := at.cluster().Name
		key := [2]string{part.component, name}
		if burden, is := known[key]; is {
			return burden
		}
		asIs, _ := x.snapshot.find(name)
		if c, lacks := x.cover(asIs, part.on(1), at.held); c != nil {
			known[key] = unbearable
			if _, ok := c.within(lacks, highest); ok {
				known[key] = c.bestCost.sum<<burdenCounts + int64(c.bestCost.count)
			}
		}
		return known[key]
	}
}

// used returns the rooms that the request uses once the victims are gone; none if it is not placed.
func (x *search) used(rooms []room) []room {
	for len(rooms) > 0 {
		d, err := x.snapshot.placeIn(x.request, x.preemption(rooms))
		if err != nil {
			return nil
		}
		used := slices.DeleteFunc(slices.Clone(rooms), func(one room) bool { return !d.Uses(one.cluster().Name) })
		if len(used) == len(rooms) {
			break
		}
		rooms = used
	}
	return rooms
}

// spared returns the rooms without the victims that need not leave, those of the highest priority first.
func (x *search) spared(rooms []room) []room {
	var all []victim
	for _, one := range rooms {
		all = append(all, one.victims...)
	}
	slices.SortFunc(all, func(a, b victim) int {
		return cmp.Or(cmp.Compare(b.class.Value, a.class.Value), strings.Compare(a.Instance, b.Instance), strings.Compare(a.Cluster, b.Cluster))
	})
	for _, v := range all {
		var fewer []room
		for _, one := range rooms {
			one.victims = slices.DeleteFunc(slices.Clone(one.victims), func(other victim) bool { return other.Reservation == v.Reservation })
			if len(one.victims) > 0 {
				fewer = append(fewer, one)
			}
		}
		if fewer = x.used(fewer); len(fewer) > 0 {
			rooms = fewer
		}
	}
	return rooms
}

// withoutPods returns the request without its largest pods: it is not known which nodes those that leave will free.
func (r Request) withoutPods() Request {
	r.LargestPods = nil
	r.Components = slices.Clone(r.Components)
	for i := range r.Components {
		r.Components[i].LargestPods = nil
	}
	return r
}
