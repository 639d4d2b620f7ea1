package placement

import (
	"maps"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// traits are the sets of rows of a page with properties that are not numbers.
type traits struct {
	rowSets
	hash [pageRows]uint64 // of the name, which breaks ties
	// groupings of the rows by labels, computed on first use.
	groupings sync.Map
	// answers of expressions and claim rules, see page.judged.
	answers *lru.Cache[string, answers]
}

type rowSets struct {
	all       set
	managing  set // makes clusters, and runs no workloads
	brokers   set // stands for a broker, and runs no workloads
	pools     set // stands for several clusters, and runs no workloads itself
	owned     set // belongs to a consumer
	peering   set // takes part in peerings
	joined    set // by invitation, and so not reachable otherwise
	ready     set
	verified  set
	cordoned  set
	uncounted set // has a capacity that is not known
	unproven  set // has to prove an offering, and has not
	unguarded set // does not enforce rules for pods
	avoided   set // has a PreferNoSchedule taint
	// exposing holds clusters with a Gateway for public ports, by the protocol that it passes.
	exposing map[v1alpha1.AppProtocol]set
	label    map[labelValue]set
	labelled map[string]set
	classes  map[string]set
	currency map[string]set
	taints   map[taintKey]set // except PreferNoSchedule
	claims   map[string]map[claimKey]set
}

type labelValue struct{ key, value string }

// taintKey is a taint, apart from when it was added.
type taintKey struct {
	key, value string
	effect     corev1.TaintEffect
}

// claimKey is a claim of a name, as rules read it.
type claimKey struct {
	value     string
	assurance v1alpha1.Assurance
}

func newTraits(clusters []*Cluster) *traits {
	t := &traits{answers: newKept[answers](), rowSets: rowSets{
		all: rowsBelow(len(clusters)), exposing: map[v1alpha1.AppProtocol]set{},
		label: map[labelValue]set{}, labelled: map[string]set{}, classes: map[string]set{}, currency: map[string]set{},
		taints: map[taintKey]set{}, claims: map[string]map[claimKey]set{},
	}}
	for row, c := range clusters {
		t.hash[row] = hash64(c.Name)
		t.put(row, c, true)
	}
	return t
}

// with returns the traits of the page after another version of one row's cluster. They take over the answers for the
// other rows.
func (t *traits) with(row int, was, is *Cluster) *traits {
	changed := &traits{rowSets: t.rowSets, hash: t.hash, answers: newKept[answers]()}
	changed.exposing, changed.label, changed.labelled = maps.Clone(t.exposing), maps.Clone(t.label), maps.Clone(t.labelled)
	changed.classes, changed.currency, changed.taints = maps.Clone(t.classes), maps.Clone(t.currency), maps.Clone(t.taints)
	changed.claims = maps.Clone(t.claims)
	own := map[string]bool{}
	for _, version := range []*Cluster{was, is} {
		for i := range version.Claims {
			if name := version.Claims[i].Name; !own[name] {
				own[name], changed.claims[name] = true, maps.Clone(t.claims[name])
			}
		}
	}
	changed.put(row, was, false)
	changed.put(row, is, true)
	changed.adopt(t, func(s set) set {
		s.remove(row)
		return s
	})
	return changed
}

// adopt takes over the answers of other traits, after a change of the sets.
func (t *traits) adopt(from *traits, to func(set) set) {
	for _, key := range from.answers.Keys() { // the oldest first
		if kept, ok := from.answers.Peek(key); ok {
			t.answers.Add(key, answers{to(kept.known), to(kept.holds)})
		}
	}
}

// inserted returns the traits of the page with one more cluster, before a row's. The page must not be full.
func (t *traits) inserted(row int, c *Cluster) *traits {
	changed := t.moved(func(s set) set { return s.opened(row) })
	copy(changed.hash[row+1:], t.hash[row:])
	changed.all.add(row)
	changed.hash[row] = hash64(c.Name)
	changed.put(row, c, true)
	return changed
}

// deleted returns the traits of the page without a row's cluster.
func (t *traits) deleted(row int) *traits {
	changed := t.moved(func(s set) set {
		s.remove(row)
		return s.closed(row)
	})
	copy(changed.hash[row:], t.hash[row+1:])
	changed.hash[pageRows-1] = 0
	return changed
}

// moved returns the traits after a change of the rows' numbers. They take over the answers.
func (t *traits) moved(to func(set) set) *traits {
	changed := &traits{hash: t.hash, answers: newKept[answers](), rowSets: t.rowSets}
	for _, one := range []*set{
		&changed.all, &changed.managing, &changed.brokers, &changed.pools, &changed.owned, &changed.peering, &changed.joined, &changed.ready, &changed.verified,
		&changed.cordoned, &changed.uncounted, &changed.unproven, &changed.unguarded, &changed.avoided,
	} {
		*one = to(*one)
	}
	changed.exposing, changed.label, changed.labelled = movedIn(t.exposing, to), movedIn(t.label, to), movedIn(t.labelled, to)
	changed.classes, changed.currency, changed.taints = movedIn(t.classes, to), movedIn(t.currency, to), movedIn(t.taints, to)
	changed.claims = make(map[string]map[claimKey]set, len(t.claims))
	for name, values := range t.claims {
		if left := movedIn(values, to); len(left) > 0 {
			changed.claims[name] = left
		}
	}
	changed.adopt(t, to)
	return changed
}

func movedIn[K comparable](sets map[K]set, to func(set) set) map[K]set {
	changed := make(map[K]set, len(sets)+1)
	for key, rows := range sets {
		if rows = to(rows); rows != (set{}) {
			changed[key] = rows
		}
	}
	return changed
}

// put adds a row to the sets to which its cluster belongs, or removes it from them.
func (t *rowSets) put(row int, c *Cluster, is bool) {
	for _, one := range []struct {
		of   *set
		here bool
	}{
		{&t.managing, c.Driver == v1alpha1.DriverCAPI}, {&t.brokers, c.Driver == v1alpha1.DriverOSB}, {&t.pools, c.Pool != nil},
		{&t.owned, len(c.Consumers) > 0}, {&t.peering, c.Liqo != nil},
		{&t.joined, c.Liqo != nil && c.Liqo.Joined != nil}, {&t.ready, c.Ready}, {&t.verified, c.AccessVerified},
		{&t.cordoned, c.Cordoned}, {&t.unproven, c.Unproven != ""}, {&t.unguarded, c.Unguarded != ""}, {&t.uncounted, c.CapacityUnknown != ""},
	} {
		if one.here {
			one.of.put(row, is)
		}
	}
	for _, spoken := range c.Exposure.Speaks() {
		put(t.exposing, spoken, row, is)
	}
	for i := range c.Claims {
		claim := &c.Claims[i]
		if t.claims[claim.Name] == nil {
			t.claims[claim.Name] = map[claimKey]set{}
		}
		if put(t.claims[claim.Name], claimKey{claim.Value, claim.Assurance}, row, is); len(t.claims[claim.Name]) == 0 {
			delete(t.claims, claim.Name)
		}
	}
	for key, value := range c.Labels {
		put(t.label, labelValue{key, value}, row, is)
		put(t.labelled, key, row, is)
	}
	for _, class := range c.StorageClasses {
		put(t.classes, class, row, is)
	}
	if c.Currency != "" {
		put(t.currency, c.Currency, row, is)
	}
	for _, taint := range c.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			t.avoided.put(row, is)
		} else {
			put(t.taints, taintKey{taint.Key, taint.Value, taint.Effect}, row, is)
		}
	}
}

// put adds a row to one of the sets, or removes it; a set without rows goes.
func put[K comparable](sets map[K]set, key K, row int, is bool) {
	s := sets[key]
	if s.put(row, is); s == (set{}) {
		delete(sets, key)
		return
	}
	sets[key] = s
}
