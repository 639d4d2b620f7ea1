package reader

import (
	"cmp"
	"maps"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// pool is the newest generation of a pool, complete and valid.
type pool struct {
	slices []*poolSlice
	// counters are shared by devices that are partitions of the same hardware.
	counters map[counter]resource.Quantity
}

type poolSlice struct {
	*resourcev1.ResourceSlice
	devices []*device
}

// counter names a counter of a pool.
type counter struct{ set, name string }

// device is a device of a pool.
type device struct {
	id deviceID
	// node that the device is bound to; empty if that is none, or several.
	node string
	// repels is true if the device has a taint that keeps claims away.
	repels  bool
	demand  map[counter]resource.Quantity
	classes []string
}

// poolsOf returns the pools whose newest generation is complete, in order. As for Kubernetes' scheduler, nothing of others
// can be allocated, nor of those that are not valid.
func poolsOf(all []*resourcev1.ResourceSlice) []*pool {
	type key struct{ driver, name string }
	newest := map[key][]*resourcev1.ResourceSlice{}
	for _, slice := range all {
		of := key{slice.Spec.Driver, slice.Spec.Pool.Name}
		switch known := newest[of]; {
		case len(known) == 0 || slice.Spec.Pool.Generation > known[0].Spec.Pool.Generation:
			newest[of] = []*resourcev1.ResourceSlice{slice}
		case slice.Spec.Pool.Generation == known[0].Spec.Pool.Generation:
			newest[of] = append(known, slice)
		}
	}
	order := func(a, b key) int { return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name)) }
	var pools []*pool
	for _, of := range slices.SortedFunc(maps.Keys(newest), order) {
		if p := poolOf(newest[of]); p != nil {
			pools = append(pools, p)
		}
	}
	return pools
}

// poolOf reads the slices of one generation; nil if nothing can be allocated of them.
func poolOf(all []*resourcev1.ResourceSlice) *pool {
	if int64(len(all)) != all[0].Spec.Pool.ResourceSliceCount {
		return nil
	}
	slices.SortFunc(all, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	p, names := &pool{counters: map[counter]resource.Quantity{}}, map[string]bool{}
	for _, slice := range all {
		for _, set := range slice.Spec.SharedCounters {
			for name, c := range set.Counters {
				p.counters[counter{set.Name, name}] = c.Value
			}
		}
		s := &poolSlice{ResourceSlice: slice}
		for i := range slice.Spec.Devices {
			d := deviceOf(slice, &slice.Spec.Devices[i])
			if d == nil || names[d.id.device] {
				return nil
			}
			names[d.id.device] = true
			s.devices = append(s.devices, d)
		}
		p.slices = append(p.slices, s)
	}
	for _, s := range p.slices {
		for _, d := range s.devices {
			for of := range d.demand {
				if _, is := p.counters[of]; !is {
					return nil
				}
			}
		}
	}
	return p
}

// deviceOf reads a device; nil if which others can be allocated beside it is not known.
func deviceOf(slice *resourcev1.ResourceSlice, from *resourcev1.Device) *device {
	d := &device{
		id:   deviceID{slice.Spec.Driver, slice.Spec.Pool.Name, from.Name},
		node: cmp.Or(ptr.Deref(slice.Spec.NodeName, ""), ptr.Deref(from.NodeName, "")),
		repels: slices.ContainsFunc(from.Taints, func(t resourcev1.DeviceTaint) bool {
			return t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
		}),
		demand: map[counter]resource.Quantity{},
	}
	for _, consumed := range from.ConsumesCounters {
		if len(consumed.CompatibilityGroups) > 0 {
			return nil
		}
		for name, c := range consumed.Counters {
			d.demand[counter{consumed.CounterSet, name}] = c.Value
		}
	}
	return d
}

// group has the devices of a pool that draw on the same counters; one, if it draws on none.
type group struct {
	counters map[counter]resource.Quantity
	devices  []*device
}

// groups divides the devices of the pool.
func (p *pool) groups() []*group {
	var groups []*group
	of := map[string]*group{} // by counter set
	for _, s := range p.slices {
		for _, d := range s.devices {
			g := &group{counters: p.counters, devices: []*device{d}}
			for c := range d.demand {
				if other := of[c.set]; other != nil && other != g {
					g.join(other, of)
				}
				of[c.set] = g
			}
			groups = append(groups, g)
		}
	}
	return slices.DeleteFunc(groups, func(g *group) bool { return g.devices == nil })
}

// join takes the devices of another group, and its counter sets.
func (g *group) join(other *group, of map[string]*group) {
	g.devices, other.devices = slices.Concat(other.devices, g.devices), nil
	for set, is := range of {
		if is == other {
			of[set] = g
		}
	}
}

// add adds the devices of a group to the tally of the class that selects them. If several do, they count for none, because
// which class takes how many is the scheduler's choice.
func (c *counting) add(g *group) {
	classes := map[string]bool{}
	for _, d := range g.devices {
		for _, class := range d.classes {
			classes[class] = true
		}
	}
	takes := func(d *device) bool {
		_, works := c.free[d.node]
		return !d.repels && (d.node == "" || works)
	}
	for class := range classes {
		t := c.tallies[class]
		if len(classes) > 1 {
			t.overlap(class, classes, g)
			continue
		}
		total := g.fit(class, takes, nil)
		if total == 0 || c.uncounted[class] != "" {
			continue
		}
		t.count += total
		t.foreign += total - min(total, g.fit(class, takes, c.foreign))
		if node, one := g.node(); one {
			t.nodes[node] += min(total, g.fit(class, takes, c.used))
		} else {
			t.anywhere = true
		}
	}
}

func (t *tally) overlap(class string, classes map[string]bool, g *group) {
	for _, d := range g.devices {
		if slices.Contains(d.classes, class) {
			t.overlapping++
		}
	}
	for other := range classes {
		if other != class {
			t.shared[other] = true
		}
	}
}

// node returns the node to which all devices of the group are bound.
func (g *group) node() (name string, one bool) {
	name = g.devices[0].node
	return name, name != "" && !slices.ContainsFunc(g.devices, func(d *device) bool { return d.node != name })
}

// fit returns a number of devices of a class that can be allocated beside the used ones, whichever are chosen: of each
// counter, the largest demands of so many devices fit. Those that take no claims count only as a choice.
func (g *group) fit(class string, takes func(*device) bool, used map[deviceID]bool) int64 {
	left := maps.Clone(g.counters)
	var choice []*device
	fit := 0
	for _, d := range g.devices {
		if used[d.id] {
			for of, amount := range d.demand {
				q := left[of]
				q.Sub(amount)
				left[of] = q
			}
			continue
		}
		if slices.Contains(d.classes, class) {
			choice = append(choice, d)
			if takes(d) {
				fit++
			}
		}
	}
	for of, rest := range left {
		demands := make([]resource.Quantity, 0, len(choice))
		for _, d := range choice {
			if amount, draws := d.demand[of]; draws {
				demands = append(demands, amount)
			}
		}
		slices.SortFunc(demands, func(a, b resource.Quantity) int { return b.Cmp(a) })
		for i, amount := range demands {
			if rest.Sub(amount); rest.Sign() < 0 {
				fit = min(fit, i)
				break
			}
		}
	}
	return int64(fit)
}
