package placement

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Fleet is the part of several member clusters that they sell together.
type Fleet struct {
	// Sold is the sum after each cluster's share, limits and hidden resources. Used is the part of it that others
	// than the fleet's reader use: pods of no instance, and instances of other platforms.
	Sold, Used Resources
	// StorageClasses of any of the clusters, sorted; so are Architectures and OperatingSystems, as far as each
	// cluster has one alone.
	StorageClasses, Architectures, OperatingSystems []string
	// Holes are the largest of all of them, for which no cluster hides a resource; nil if those of a cluster are not known.
	Holes *Holes
}

// Fleet returns what the clusters that a selector matches sell together, read by a platform. Clusters that take no
// new placements, or only those that tolerate a taint, are left out, with what is reserved there.
func (s *Snapshot) Fleet(clusters labels.Selector, platform string) Fleet {
	among := s.open(clusters, nil)
	s.countOnce(among)
	return s.fleet(among, Consumer{Platform: platform}.holder(v1alpha1.ScopePlatform))
}

// fleet adds up rows of pages, read by a holder.
func (s *Snapshot) fleet(among map[*page]set, reader string) Fleet {
	f := Fleet{Sold: Resources{}, Used: Resources{}}
	classes, architectures, systems := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for p, rows := range among {
		for row := range rows.rows() {
			c := p.clusters[row]
			for _, class := range c.StorageClasses {
				classes[class] = true
			}
			if value := c.Labels[corev1.LabelArchStable]; value != "" {
				architectures[value] = true
			}
			if value := c.Labels[corev1.LabelOSStable]; value != "" {
				systems[value] = true
			}
		}
		for name, i := range s.columns {
			if name == v1alpha1.ResourcePublicPorts || i >= len(p.columns) || p.columns[i].size == nil {
				continue // ports are of a cluster's own addresses
			}
			column, sold, free := p.columns[i], int64(0), int64(0)
			for row := range rows.rows() {
				sold, free = sold+column.size[row], free+max(column.free[row], 0)
			}
			f.Sold[name] += sold
			f.Used[name] += sold - free
		}
	}
	for _, held := range rows[Reservation](s.store, tableReservation, indexHolder, reader) {
		if at, found := s.find(held.Cluster); found {
			if rows := among[at.page]; rows.has(at.row) {
				f.Used.Add(held.Resources, -1)
			}
		}
	}
	for name := range f.Used {
		f.Used[name] = max(f.Used[name], 0)
	}
	maps.DeleteFunc(f.Used, func(name corev1.ResourceName, used int64) bool { return used == 0 || f.Sold[name] == 0 })
	maps.DeleteFunc(f.Sold, func(_ corev1.ResourceName, sold int64) bool { return sold == 0 })
	f.StorageClasses, f.Architectures, f.OperatingSystems = slices.Sorted(maps.Keys(classes)), slices.Sorted(maps.Keys(architectures)), slices.Sorted(maps.Keys(systems))
	f.Holes = largestHoles(among, counted(f.Sold))
	return f
}

// largestHoles returns those holes of clusters that no other of them exceeds, of some resources; nil if those of a cluster
// are not known. What a cluster does not sell of a resource, it does not have.
func largestHoles(among map[*page]set, names []corev1.ResourceName) *Holes {
	h := &Holes{names: names, free: make([]int64, len(names))}
	var largest [][]int64
	one, at := make([]int64, len(names)+1), make([]int, len(names)) // at is where a resource is in a cluster's own holes
	for p, rows := range among {
		for row := range rows.rows() {
			c := p.clusters[row]
			if c.Holes == nil {
				return nil
			}
			for i, name := range names {
				sold := c.sold(name)
				if at[i] = slices.Index(c.Holes.names, name); at[i] < 0 || sold == 0 {
					at[i] = -1
					continue
				}
				h.free[i] += max(sold-c.Allocatable[name]+c.Holes.free[at[i]], 0)
			}
			for from := range c.Holes.each() {
				one[len(names)] = from[len(from)-1]
				for i := range names {
					if one[i] = 0; at[i] >= 0 {
						one[i] = from[at[i]]
					}
				}
				if !empty(one[:len(names)]) {
					largest = withRow(largest, one)
				}
			}
		}
	}
	slices.SortFunc(largest, compareRows)
	largest = mostTelling(largest)
	h.rows = slices.Concat(largest...)
	return h
}

// withRow adds a copy of a row to some of which none exceeds another, unless one of them exceeds it.
func withRow(rows [][]int64, one []int64) [][]int64 {
	amounts := one[:len(one)-1]
	for _, row := range rows {
		if within(amounts, row) {
			if within(row[:len(amounts)], amounts) { // it is the same
				row[len(amounts)] += one[len(amounts)]
			}
			return rows
		}
	}
	return append(slices.DeleteFunc(rows, func(row []int64) bool { return within(row[:len(amounts)], amounts) }), slices.Clone(one))
}

// countOnce removes the pools that have a member among the rows, which would count twice.
func (s *Snapshot) countOnce(among map[*page]set) {
	for p, rows := range among {
		for row := range rows.and(p.pools).rows() {
			pool := p.clusters[row].Pool
			for other, some := range among {
				if some.and(other.peering).where(func(row int) bool { return pool.has(other.clusters[row]) }) != (set{}) {
					rows.remove(row)
					break
				}
			}
		}
		among[p] = rows
	}
}

// open returns the rows of the clusters that a selector matches and that take new placements with tolerations, by page.
func (s *Snapshot) open(clusters labels.Selector, tolerations []corev1.Toleration) map[*page]set {
	filters := []filter{notReady(), accessNotVerified(), capacityUnknown(), notAdmitted(), cordoned(), tainted(tolerations)}
	requirements, _ := clusters.Requirements()
	for _, requirement := range requirements {
		filters = append(filters, labelMismatch(requirement))
	}
	among := make(map[*page]set, len(s.pages))
	for _, p := range s.pages {
		among[p] = p.passing(filters)
	}
	return among
}
