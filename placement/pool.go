package placement

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Pool describes the clusters for which one row of the inventory stands.
type Pool struct {
	// Front is the hub of the pool.
	Front string
	// Members selects the clusters of the pool by their labels.
	Members labels.Selector
}

func poolOf(mc *v1alpha1.MemberCluster) *Pool {
	if mc.Spec.Pool == nil {
		return nil
	}
	members, err := metav1.LabelSelectorAsSelector(&mc.Spec.Pool.Members)
	if err != nil {
		members = noCluster()
	}
	return &Pool{Front: mc.Spec.Pool.Front, Members: members}
}

// noCluster selects no cluster. (Filters would read labels.Nothing, which has no requirements, as everything.)
func noCluster() labels.Selector {
	none, _ := OnlyClusters(nil, "") // no cluster has an empty name
	return none
}

// has reports whether a cluster is a member of the pool.
func (p *Pool) has(c *Cluster) bool {
	return c.Liqo != nil && !c.Liqo.Hub && len(c.Consumers) == 0 && c.Name != p.Front && p.Members.Matches(c.Labels)
}

// scopeOfPools is the scope of pools as holders of what they have reserved on their members. There is no quota of this scope.
const scopeOfPools v1alpha1.Scope = "pool"

func holderOfPool(pool string) string { return string(scopeOfPools) + " " + pool }

// ofPool reports whether the request is for a pool, which places it on its members by an order of its own.
func (p *Peering) ofPool() bool { return p != nil && p.IsOpaque() && p.order == nil }

// Pooled returns the order by which a pool carries out a placement of an instance; nil if the request is not for a pool.
func (p *Peering) Pooled(instance, pool string) *v1alpha1.PlacementPool {
	if !p.ofPool() {
		return nil
	}
	return &v1alpha1.PlacementPool{Instance: v1alpha1.PoolInstanceName(pool, instance)}
}

// isHub reports whether instances may be delivered through a cluster: any hub or, if a pool orders, its front, or the one
// that was its front when the instance was delivered.
func (p *Peering) isHub(c *Cluster, s *Snapshot) bool {
	if p.order == nil || !c.Liqo.Hub || c.Name == p.Hub {
		return c.Liqo.Hub
	}
	pool := s.pool(p.order.Pool)
	return pool != nil && pool.Front == c.Name
}

// ruledBy returns those of the rules that apply. What has to be proven is proven by the clusters: a pool proves nothing, so
// its members and its front do. Expressions read what consumers know, which is the pool; so they decide about the pool, and
// what is behind it is none of their business. Rules of a provider are about its own clusters, whichever these are.
func (p *Peering) ruledBy(rules []Rule) []Rule {
	if !p.IsOpaque() {
		return rules
	}
	return slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool {
		if r.Provider != "" || r.broken != "" || r.appliesTo == v1alpha1.RuleConsumer {
			return false
		}
		return p.ofPool() && r.claim != nil || !p.ofPool() && r.expression != nil
	})
}

// pool returns the pool with a name; nil if there is none.
func (s *Snapshot) pool(name string) *Pool {
	if c := s.Cluster(name); c != nil {
		return c.Pool
	}
	return nil
}

// membersOf selects the members of a pool.
func (s *Snapshot) membersOf(pool string) labels.Selector {
	if p := s.pool(pool); p != nil {
		return p.Members
	}
	return noCluster()
}

// Within returns the request as a pool orders it to carry out an order of a consumer: on as few of its members as have room
// for all replicas. What the plan and the consumer ask of clusters in general, they ask of the pool. What has to be proven,
// its members prove (see ruledBy), and they have the room.
func (r Request) Within(order *v1alpha1.PoolOrder) Request {
	if order == nil || r.Peering == nil {
		return r
	}
	peering := *r.Peering
	peering.order = order
	r.Peering, r.Consumer.Pool, r.Fewest = &peering, order.Pool, r.Replicas > 0
	r.Clusters, r.Selector, r.Tier, r.MaxPrice, r.Spread, r.Affinity, r.ExcludeProviders = 1, nil, "", nil, nil, nil, nil
	r.Tolerations = slices.Concat(r.Tolerations, toleratedBy(order.Pool))
	r.MaxLatency, r.Near, r.MaxDistance, r.Class = nil, nil, 0, ""
	return r
}

// fewest returns the least number of clusters that have room for all replicas; if there are not enough, on how many there is
// room for any. The clusters that the request is on come first.
func (e *evaluation) fewest() int {
	var there, others []int64
	for i := range e.current {
		there = keepBest(there, e.room(e.current[i].position), mostClusters, descending)
	}
	for i, p := range e.pages {
		for row := range e.fits[i].rows() {
			others = keepBest(others, e.room(position{page: p, row: row}), mostClusters, descending)
		}
	}
	left, n := int64(e.request.Replicas), 0
	for _, room := range slices.Concat(there, others) {
		if left <= 0 || room == 0 || n == mostClusters {
			break
		}
		left, n = left-room, n+1
	}
	return max(n, 1)
}

func descending(a, b int64) int { return cmp.Compare(b, a) }

// Pooled returns what the members of a pool that take placements sell together, apart from what they have for others than the
// pool, and how many of its members these are. known is false if there is no such pool.
func (s *Snapshot) Pooled(name string) (sum Fleet, open, members int, known bool) {
	pool := s.pool(name)
	if pool == nil {
		return sum, 0, 0, false
	}
	among := s.open(pool.Members, toleratedBy(name))
	for _, p := range s.pages {
		of := p.peering.where(func(row int) bool { return pool.has(p.clusters[row]) })
		among[p] = among[p].and(of)
		open, members = open+among[p].len(), members+of.len()
	}
	return s.fleet(among, holderOfPool(name)), open, members, true
}

// toleratedBy returns the toleration of clusters that only a pool sells.
func toleratedBy(pool string) []corev1.Toleration {
	return []corev1.Toleration{{Key: v1alpha1.TaintPool, Operator: corev1.TolerationOpEqual, Value: pool}}
}
