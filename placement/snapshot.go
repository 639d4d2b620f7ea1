package placement

import (
	"iter"
	"slices"
	"sort"

	memdb "github.com/hashicorp/go-memdb"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Snapshot is the inventory at one instant. It never changes, and is safe for concurrent use.
//
// Clusters are kept in the order of their names, 256 to a page, and each page by column. A
// placement reads three numbers of every cluster and all fields of very few: that scan is
// several times faster over columns than over the objects of the store of record. A change
// copies one page.
type Snapshot struct {
	pages []*page
	// columns numbers the resources that any cluster has.
	columns map[corev1.ResourceName]int
	// store has the reservations and their holders, at the same instant.
	store    *memdb.Txn
	policies Policies
	proofs   Proofs
	// sold has the holdings of orders with each scarce resource.
	sold map[corev1.ResourceName]sold
	// preemptions by the instance for which room is being made.
	preemptions map[string]*v1alpha1.Preemption
	// vicinities in which the store has the numbers of neighbours.
	vicinities []vicinity
}

// Policies in force.
func (s *Snapshot) Policies() Policies { return s.policies }

// page is up to 256 clusters, by column.
type page struct {
	clusters []*Cluster
	columns  []column // of zero value for resources that none of them has
	// holes by row, as far as the pods that are meant to run leave them; nil if none are known.
	holes []*Holes
	*traits
}

// column holds one resource of a page's clusters, by row.
type column struct {
	size  []int64 // what is sold: allocatable, or more if oversubscribed
	free  []int64 // size − foreign use − reserved; negative when a cluster has shrunk
	price []int64 // of one unit of the price list, in billionths per hour
}

// left returns what is free of the resource, or what would be if nothing were on the clusters.
func (c column) left(empty bool) []int64 {
	if empty {
		return c.size
	}
	return c.free
}

// newPage arranges clusters by column; books are what is held on each, by name.
func newPage(clusters []*Cluster, columns map[corev1.ResourceName]int, books map[string]book) *page {
	p := &page{clusters: clusters, columns: make([]column, len(columns)), traits: newTraits(clusters)}
	for row, c := range clusters {
		p.write(row, columns, books[c.Name])
	}
	return p
}

// write writes the numbers of one row, which has none yet.
func (p *page) write(row int, columns map[corev1.ResourceName]int, held book) {
	c := p.clusters[row]
	for name := range c.resources(held.reserved) {
		if i, known := columns[name]; known {
			if p.columns[i].size == nil {
				p.columns[i] = nothing.copied(len(p.clusters))
			}
			p.columns[i].enter(row, cellOf(c, name, held.reserved))
		}
	}
	p.dig(row, c.holesLeft(held))
}

// dig writes the holes of one row.
func (p *page) dig(row int, left *Holes) {
	if p.holes == nil {
		if left == nil {
			return
		}
		p.holes = make([]*Holes, len(p.clusters))
	}
	p.holes[row] = left
}

// with returns a copy of the page with another version of one row's cluster.
func (p *page) with(row int, c *Cluster, columns map[corev1.ResourceName]int, held book) *page {
	was := p.clusters[row]
	changed := &page{clusters: slices.Clone(p.clusters), columns: make([]column, len(columns)), holes: slices.Clone(p.holes), traits: p.traits}
	changed.clusters[row] = c
	if !c.sameTraits(was) {
		changed.traits = p.traits.with(row, was, c)
	}
	copy(changed.columns, p.columns)
	for _, version := range []*Cluster{was, c} {
		for name := range version.resources(held.reserved) {
			i, known := columns[name]
			if !known || changed.column(i).cell(row) == cellOf(c, name, held.reserved) {
				continue
			}
			changed.columns[i] = changed.column(i).copied(len(p.clusters))
			changed.columns[i].enter(row, cellOf(c, name, held.reserved))
		}
	}
	changed.dig(row, c.holesLeft(held))
	return changed
}

// inserted returns a copy of the page, which is not full, with one more cluster before a row's.
func (p *page) inserted(row int, c *Cluster, columns map[corev1.ResourceName]int, held book) *page {
	changed := &page{clusters: slices.Insert(slices.Clone(p.clusters), row, c), columns: make([]column, len(columns)), traits: p.traits.inserted(row, c)}
	for i, one := range p.columns {
		if one.size != nil {
			with := func(numbers []int64) []int64 { return slices.Insert(slices.Clone(numbers), row, 0) }
			changed.columns[i] = column{with(one.size), with(one.free), with(one.price)}
		}
	}
	if p.holes != nil {
		changed.holes = slices.Insert(slices.Clone(p.holes), row, nil)
	}
	changed.write(row, columns, held)
	return changed
}

// deleted returns a copy of the page without a row's cluster.
func (p *page) deleted(row int) *page {
	changed := &page{clusters: slices.Delete(slices.Clone(p.clusters), row, row+1), columns: make([]column, len(p.columns)), traits: p.traits.deleted(row)}
	for i, one := range p.columns {
		without := func(numbers []int64) []int64 { return slices.Delete(slices.Clone(numbers), row, row+1) }
		if one.size == nil {
			continue
		}
		has := func(n int64) bool { return n != 0 }
		left := column{without(one.size), without(one.free), without(one.price)}
		if slices.ContainsFunc(left.size, has) || slices.ContainsFunc(left.free, has) || slices.ContainsFunc(left.price, has) {
			changed.columns[i] = left
		}
	}
	if p.holes != nil {
		changed.holes = slices.Delete(slices.Clone(p.holes), row, row+1)
	}
	return changed
}

// withReserved returns a copy of the page with more reservations on one row, of which held is then all.
func (p *page) withReserved(row int, more Resources, columns map[corev1.ResourceName]int, held book) *page {
	changed := *p
	changed.columns = slices.Clone(p.columns)
	for name, amount := range more {
		i, known := columns[name]
		if !known || i >= len(changed.columns) || amount == 0 {
			continue // no cluster of the page has this resource, for instance persistent storage
		}
		old := changed.column(i)
		free := slices.Clone(old.free)
		free[row] = cellOf(p.clusters[row], name, held.reserved).free
		changed.columns[i] = column{old.size, free, old.price}
	}
	if c := p.clusters[row]; c.Holes != nil {
		changed.holes = slices.Clone(p.holes)
		changed.dig(row, c.holesLeft(held))
	}
	return &changed
}

// cell is a row of a column.
type cell struct{ size, free, price int64 }

func cellOf(c *Cluster, name corev1.ResourceName, reserved Resources) cell {
	return cell{c.sold(name), c.Unreserved(name) - reserved[name], c.Prices[name]}
}

func (c column) cell(row int) cell { return cell{c.size[row], c.free[row], c.price[row]} }

func (c column) enter(row int, one cell) {
	c.size[row], c.free[row], c.price[row] = one.size, one.free, one.price
}

// copied returns a copy of the first rows.
func (c column) copied(rows int) column {
	return column{slices.Clone(c.size[:rows]), slices.Clone(c.free[:rows]), slices.Clone(c.price[:rows])}
}

// nothing is the column of a resource that no cluster of a page has.
var nothing = func() column {
	zeros := make([]int64, pageRows)
	return column{zeros, zeros, zeros}
}()

// column returns a column by number. Those of resources that no cluster of the page has, that were added after
// the page was made, and the number −1, are columns of zeros.
func (p *page) column(i int) column {
	if i < 0 || i >= len(p.columns) || p.columns[i].size == nil {
		zeros := nothing.size[:len(p.clusters)]
		return column{zeros, zeros, zeros}
	}
	return p.columns[i]
}

// Len returns the number of clusters.
func (s *Snapshot) Len() int {
	n := 0
	for _, p := range s.pages {
		n += len(p.clusters)
	}
	return n
}

// Outage reports whether more than half of the clusters do not answer.
func (s *Snapshot) Outage() bool {
	answering := 0
	for _, p := range s.pages {
		answering += p.ready.len()
	}
	return 2*answering < s.Len()
}

// Cluster returns the cluster of that name, or nil.
func (s *Snapshot) Cluster(name string) *Cluster {
	if at, found := s.find(name); found {
		return at.cluster()
	}
	return nil
}

// Free returns what a cluster has left of a resource after foreign use and reservations.
func (s *Snapshot) Free(cluster string, name corev1.ResourceName) int64 {
	at, found := s.find(cluster)
	if !found {
		return 0
	}
	return at.page.column(s.columnOf(name)).free[at.row]
}

// Reserved returns an instance's reservations on a cluster.
func (s *Snapshot) Reserved(instance, cluster string) Resources {
	if held := row[Reservation](s.store, tableReservation, instance, cluster); held != nil {
		return held.Resources
	}
	return nil
}

// Uses reports whether an instance is on a cluster: with a reservation there, or reached through it as a hub.
func (s *Snapshot) Uses(instance, cluster string) bool {
	return slices.ContainsFunc(rows[Reservation](s.store, tableReservation, indexOf, instance, ""), func(r *Reservation) bool {
		return r.Cluster == cluster || r.Hub == cluster
	})
}

// Reservations returns all reservations on a cluster, by instance.
func (s *Snapshot) Reservations(cluster string) []*Reservation {
	return rows[Reservation](s.store, tableReservation, indexCluster, cluster)
}

// position is one cluster's row, and what the request already holds there.
type position struct {
	page *page
	row  int
	held Resources
}

func (s position) cluster() *Cluster { return s.page.clusters[s.row] }

func (s position) same(other position) bool { return s.page == other.page && s.row == other.row }

// find locates a cluster by name.
func (s *Snapshot) find(name string) (position, bool) {
	after := s.after(name)
	if after == 0 {
		return position{}, false
	}
	p := s.pages[after-1]
	row, found := p.find(name)
	if !found {
		return position{}, false
	}
	return position{page: p, row: row}, true
}

// after returns the number of the first page of which all names are after a name.
func (s *Snapshot) after(name string) int {
	return sort.Search(len(s.pages), func(i int) bool { return s.pages[i].clusters[0].Name > name })
}

// find locates a cluster of the page by name.
func (p *page) find(name string) (row int, found bool) {
	row = sort.Search(len(p.clusters), func(i int) bool { return p.clusters[i].Name >= name })
	return row, row < len(p.clusters) && p.clusters[row].Name == name
}

// columnOf returns the number of a resource's column, or −1 if no cluster has any.
func (s *Snapshot) columnOf(name corev1.ResourceName) int {
	if i, known := s.columns[name]; known {
		return i
	}
	return -1
}

// ReadyClusters returns those whose API server answers, by name.
func (s *Snapshot) ReadyClusters() []*Cluster {
	return rows[Cluster](s.store, tableCluster, indexReady, true)
}

// Clusters returns all clusters, by name.
func (s *Snapshot) Clusters() []*Cluster { return rows[Cluster](s.store, tableCluster, indexID) }

// Utilisation yields each cluster with what is reserved of each resource that it has.
func (s *Snapshot) Utilisation() iter.Seq2[*Cluster, Resources] {
	return func(yield func(*Cluster, Resources) bool) {
		for _, p := range s.pages {
			for row, c := range p.clusters {
				reserved := Resources{}
				for name, has := range c.Allocatable {
					if has > 0 {
						reserved[name] = c.Unreserved(name) - p.column(s.columnOf(name)).free[row]
					}
				}
				if !yield(c, reserved) {
					return
				}
			}
		}
	}
}
