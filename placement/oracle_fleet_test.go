package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// world is a small fleet, what is held on it, and what is known of the policies.
type world struct {
	*rand.Rand
	clusters []*placement.Cluster
	held     []placement.Holding
	// nodes have the free resources of each node of a cluster, by the cluster's name.
	nodes map[string][]placement.Resources
	quota *v1alpha1.Quota
	now   time.Time
	// plain fleets have few reasons to refuse a cluster, so that there is much to choose from.
	plain bool
}

const (
	cpu    = corev1.ResourceCPU
	memory = corev1.ResourceMemory
	gpu    = corev1.ResourceName("example.com/gpu")
	month  = 30 * 24 * time.Hour
)

// countable resources; the others are storage.
var countable = []corev1.ResourceName{cpu, memory, gpu}

// places are far enough from each other that distances do not depend on rounding.
var places = []*placement.Location{nil, placement.LocationAt(52.5, 13.4), placement.LocationAt(48.1, 11.6), placement.LocationAt(40.7, -74)}

func (w *world) one(in int) bool { return w.IntN(in) == 0 }

func pick[T any](w *world, from ...T) T { return from[w.IntN(len(from))] }

// newWorld draws a fleet; the same seed gives the same one.
func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 16)), nodes: map[string][]placement.Resources{}, now: time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)}
	w.plain = w.one(2)
	for i := range 1 + w.IntN(8) {
		w.clusters = append(w.clusters, w.cluster(fmt.Sprintf("c%d", i)))
	}
	for i := range w.IntN(5) {
		h := placement.Holding{Instance: fmt.Sprintf("si-%d", i), Consumer: w.consumer(), Held: map[string]placement.Resources{}, Prices: map[string]placement.Resources{}, Pods: map[string][]placement.Resources{}}
		for range 1 + w.IntN(2) {
			cluster := pick(w, w.clusters...).Name
			h.Held[cluster] = placement.Resources{cpu: int64(w.IntN(4)) * 1000, memory: int64(w.IntN(3)) << 30}
			if w.one(3) {
				h.Held[cluster][gpu] = int64(w.IntN(3))
			}
			h.Pods[cluster] = w.pods(h.Held[cluster])
			h.Prices[cluster] = w.priced(cluster, h.Held[cluster])
		}
		w.held = append(w.held, h)
	}
	if w.one(2) {
		w.quota = w.drawQuota()
	}
	return w
}

func (w *world) consumer() placement.Consumer {
	return placement.Consumer{
		Platform: pick(w, "cf", "cf", "k8s"), Organization: pick(w, "o1", "o2"), Space: pick(w, "s1", "s1", "s2"),
		Application: pick(w, "", "shop", "blog"), Plan: "plan",
	}
}

func (w *world) cluster(name string) *placement.Cluster {
	c := w.plainCluster(name)
	if !w.plain {
		c = w.richCluster(name)
	}
	if w.one(3) {
		c.Allocatable[gpu] = int64(1 + w.IntN(8))
		if c.Sold != nil {
			c.Sold[gpu] = c.Allocatable[gpu]
		}
	}
	w.dig(c)
	return c
}

func (w *world) richCluster(name string) *placement.Cluster {
	c := &placement.Cluster{
		Name: name, Driver: v1alpha1.DriverKube, Ready: !w.one(10), AccessVerified: !w.one(15), Cordoned: w.one(12),
		Region: pick(w, "", "a", "a", "b", "b", "c"), Provider: pick(w, "", "one", "two"),
		Allocatable: placement.Resources{cpu: int64(w.IntN(17)) * 1000, memory: int64(w.IntN(33)) << 30},
		ForeignUse:  placement.Resources{cpu: int64(w.IntN(4)) * 500, memory: int64(w.IntN(3)) << 30},
		Latency:     time.Duration(pick(w, 0, 5, 20, 80)) * time.Millisecond, Location: pick(w, places...),
		StorageClasses: pick(w, nil, []string{"fast"}, []string{"fast", "slow"}), Latencies: map[string]placement.Measured{},
	}
	if w.one(20) {
		c.CapacityUnknown = "its reader is silent"
	}
	if w.one(20) {
		c.Driver = v1alpha1.DriverCAPI
	}
	if w.one(20) {
		c.Consumers = []v1alpha1.ConsumerReference{{Platform: "cf"}}
	}
	if w.one(15) {
		c.Unproven = "nothing was presented"
	}
	c.Labels = labels.Set{v1alpha1.LabelCluster: name, v1alpha1.LabelTier: pick(w, "cloud", "cloud", "edge"), "class": pick(w, "gold", "silver")}
	if c.Region != "" {
		c.Labels[v1alpha1.LabelRegion] = c.Region
	}
	if c.Provider != "" {
		c.Labels[v1alpha1.LabelProvider] = c.Provider
	}
	if w.one(3) {
		c.Taints = []corev1.Taint{{Key: pick(w, "dedicated", "noisy"), Value: "x", Effect: pick(w, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule)}}
	}
	if w.one(4) {
		c.Sold = placement.Resources{cpu: c.Allocatable[cpu] * 3 / 2, memory: c.Allocatable[memory]}
	}
	if w.one(5) {
		c.Sell = &v1alpha1.Sale{Share: int32(pick(w, 0, 50, 80))}
		if w.one(2) {
			c.Sell.AtMost = corev1.ResourceList{cpu: resource.MustParse("6")}
		}
	}
	if !w.one(4) {
		c.Currency = pick(w, "EUR", "EUR", "USD")
		c.Prices = map[corev1.ResourceName]int64{cpu: int64(1+w.IntN(5)) * 1e8, memory: int64(w.IntN(3)) * 1e7}
	}
	for range w.IntN(3) {
		until := pick(w, 0, 24, 24*30, 24*365)
		c.Claims = append(c.Claims, v1alpha1.Claim{
			Name: v1alpha1.ClaimDatacenterCountry, Value: pick(w, "DE", "FR", "US"),
			Assurance: pick(w, v1alpha1.AssuranceSelf, v1alpha1.AssuranceNotary, v1alpha1.AssuranceCertified),
		})
		if end := w.now.Add(time.Duration(until) * time.Hour); until > 0 && (c.ClaimsUntil.IsZero() || end.Before(c.ClaimsUntil)) {
			c.ClaimsUntil = end
		}
	}
	for i := range 7 {
		if w.one(2) {
			c.Latencies[fmt.Sprintf("c%d", i)] = placement.Measured{Median: time.Duration(1+w.IntN(30)) * time.Millisecond}
		}
	}
	return c
}

func (w *world) plainCluster(name string) *placement.Cluster {
	c := &placement.Cluster{
		Name: name, Driver: v1alpha1.DriverKube, Ready: true, AccessVerified: true, Cordoned: w.one(20), Region: pick(w, "a", "a", "b", "c"),
		Allocatable: placement.Resources{cpu: int64(1+w.IntN(9)) * 1000, memory: int64(4+w.IntN(30)) << 30},
		Currency:    "EUR", Prices: map[corev1.ResourceName]int64{cpu: int64(1+w.IntN(9)) * 1e8}, Latencies: map[string]placement.Measured{},
	}
	c.Labels = labels.Set{v1alpha1.LabelCluster: name, v1alpha1.LabelRegion: c.Region, "class": pick(w, "gold", "silver")}
	for i := range 8 {
		if w.one(2) {
			c.Latencies[fmt.Sprintf("c%d", i)] = placement.Measured{Median: time.Duration(1+w.IntN(30)) * time.Millisecond}
		}
	}
	return c
}

// inventory returns the world as the engine knows it.
func (w *world) inventory() *placement.Inventory {
	inventory := placement.NewInventory()
	if w.quota != nil {
		inventory.SetPolicies(placement.Policies{{Name: "small", Quota: w.quota}})
	}
	for _, c := range w.clusters {
		inventory.UpsertCluster(c)
	}
	for _, h := range w.held {
		inventory.Reserve(h)
	}
	return inventory
}

// rule is a rule, and its meaning.
type rule struct {
	placement.Rule
	holds func(*placement.Cluster) bool
}

var compiled = sync.OnceValue(func() (all []placement.Rule) {
	for _, from := range rules {
		from.from.Name = "rule"
		one, err := placement.CompileRule("plan", "", from.from)
		if err != nil {
			panic(err)
		}
		all = append(all, one)
	}
	return all
})

var rules = []struct {
	from  v1alpha1.PolicyRule
	holds func(*placement.Cluster) bool
}{
	{v1alpha1.PolicyRule{Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"EU"}}}, claims("self", "DE", "FR")},
	{v1alpha1.PolicyRule{Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"DEU"}, Assurance: v1alpha1.AssuranceNotary}}, claims("notary", "DE")},
	{v1alpha1.PolicyRule{Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Assurance: v1alpha1.AssuranceCertified}}, claims("certified", "DE", "FR", "US")},
	{v1alpha1.PolicyRule{Expression: "cluster.labels.class == 'gold' || cluster.region == 'b'"}, func(c *placement.Cluster) bool { return c.Labels["class"] == "gold" || c.Region == "b" }},
	{v1alpha1.PolicyRule{Expression: "cluster.provider != 'two' && consumer.space == 's1'"}, nil},
}

func claims(least string, values ...string) func(*placement.Cluster) bool {
	order := []string{"self", "notary", "label", "certified"}
	return func(c *placement.Cluster) bool {
		return slices.ContainsFunc(c.Claims, func(claim v1alpha1.Claim) bool {
			return slices.Contains(values, claim.Value) && slices.Index(order, string(claim.Assurance)) >= slices.Index(order, least)
		})
	}
}

func (w *world) rule(consumer placement.Consumer) rule {
	i := w.IntN(len(rules))
	holds := rules[i].holds
	if holds == nil {
		holds = func(c *placement.Cluster) bool { return c.Provider != "two" && consumer.Space == "s1" }
	}
	return rule{compiled()[i], holds}
}

// order is a request, and what the oracle needs to know of it besides.
type order struct {
	placement.Request
	kind     string
	selected func(*placement.Cluster) bool
	rules    []rule
	wishes   []rule // the rules of the preferences, in their order
}

var selectors = []struct {
	text    string
	matches func(*placement.Cluster) bool
}{
	{"", func(*placement.Cluster) bool { return true }}, {"", func(*placement.Cluster) bool { return true }},
	{"class=gold", func(c *placement.Cluster) bool { return c.Labels["class"] == "gold" }},
	{v1alpha1.LabelRegion + " in (a,b)", func(c *placement.Cluster) bool { return c.Region == "a" || c.Region == "b" }},
	{v1alpha1.LabelRegion + "!=a", func(c *placement.Cluster) bool { return c.Region != "a" }},
	{v1alpha1.LabelProvider, func(c *placement.Cluster) bool { return c.Provider != "" }},
	{"!" + v1alpha1.LabelProvider, func(c *placement.Cluster) bool { return c.Provider == "" }},
}

// order draws a request of one of the kinds.
func (w *world) order() *order {
	o := &order{kind: pick(w, "one", "several", "spread", "bounded spread", "preferred spread", "each", "replicas", "spread replicas", "bounded spread replicas", "preferred spread replicas", "each replicas", "components"), selected: selectors[0].matches}
	r := &o.Request
	r.ID, r.Consumer, r.At = "si-new", w.consumer(), w.now
	r.Resources = placement.Resources{cpu: int64(w.IntN(4)) * 1000, memory: int64(w.IntN(4)) << 30}
	selector := pick(w, selectors...)
	o.selected = selector.matches
	r.Selector, _ = labels.Parse(selector.text)
	if w.one(4) {
		o.rules = append(o.rules, w.rule(r.Consumer))
		r.Rules = append(r.Rules, o.rules[len(o.rules)-1].Rule)
	}
	r.Weights = v1alpha1.ScoreWeights{
		Fit: int32(w.IntN(2)), Balance: int32(w.IntN(3)), Pack: int32(w.IntN(2)), Price: int32(w.IntN(3)), Latency: int32(w.IntN(2)),
		Locality: int32(w.IntN(2)), Freshness: int32(w.IntN(2)), Diversity: int32(w.IntN(2)), External: int32(w.IntN(2)),
	}
	if w.plain {
		*o = order{kind: o.kind, selected: selectors[0].matches}
		*r = placement.Request{ID: "si-new", Consumer: r.Consumer, At: w.now, Resources: placement.Resources{cpu: int64(1+w.IntN(2)) * 1000}, Weights: pick(w, v1alpha1.ScoreWeights{Price: 1}, v1alpha1.ScoreWeights{Pack: 1}, v1alpha1.ScoreWeights{Fit: 1}, v1alpha1.ScoreWeights{})}
	} else {
		w.narrow(o)
	}
	if w.one(4) && o.kind != "components" {
		r.Resources[gpu] = int64(w.IntN(4))
	}
	by := [][]string{{v1alpha1.LabelRegion}, {v1alpha1.LabelRegion}, {v1alpha1.LabelRegion, "class"}, {"class"}}
	if o.kind != "one" && o.kind != "components" {
		r.Clusters = 1 + w.IntN(5)
	}
	if strings.Contains(o.kind, "spread") {
		r.Clusters = 1 + w.IntN(7)
	}
	switch o.kind {
	case "bounded spread", "bounded spread replicas":
		r.Spread = &placement.Spread{By: pick(w, by...), MaxSkew: w.IntN(4)}
		if groups := 1 + w.IntN(min(r.Clusters, 4)); w.one(2) {
			r.Spread.Groups = groups
		} else {
			r.Spread.MinGroups = groups
		}
		if w.one(2) {
			r.Spread.MinPerGroup = 1 + w.IntN(3)
		}
		if w.one(2) {
			r.Spread.MaxPerGroup = max(r.Spread.MinPerGroup, 1+w.IntN(3))
		}
	case "preferred spread", "preferred spread replicas":
		r.Spread = &placement.Spread{By: pick(w, by...), Weight: int32(1 + w.IntN(8))}
	case "spread", "spread replicas":
		r.Spread = &placement.Spread{By: pick(w, by...), Groups: w.IntN(min(r.Clusters, 4) + 1), MaxSkew: w.IntN(4)}
	case "each", "each replicas":
		r.Spread = &placement.Spread{By: pick(w, by...), Each: true}
	case "components":
		w.components(o)
	}
	r.LargestPods = w.pods(r.Resources)
	switch o.kind {
	case "replicas", "spread replicas", "bounded spread replicas", "preferred spread replicas", "each replicas":
		r.Replicas = 1 + w.IntN(18)
		r.Division.By = pick(w, v1alpha1.DivideEvenly, v1alpha1.DivideByWeight, v1alpha1.DivideByCapacity, v1alpha1.DivideByPrice)
		if r.Division.By == v1alpha1.DivideByWeight {
			gold, _ := labels.Parse("class=gold")
			r.Division.Weights = []placement.ClusterWeight{{Selector: gold, Weight: int64(1 + w.IntN(9))}}
		}
		if r.Resources[cpu] == 0 {
			r.Resources[cpu] = 1000
		}
	}
	return o
}

// narrow adds requirements and preferences.
func (w *world) narrow(o *order) {
	r := &o.Request
	if !w.one(4) {
		r.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	if w.one(6) {
		r.Tier = v1alpha1.TierCloud
	}
	if w.one(6) {
		r.MaxPrice = &placement.Price{Currency: "EUR", NanoPerHour: int64(w.IntN(25)) * 1e8}
	}
	if w.one(8) {
		r.ExcludeProviders = []string{"two"}
	}
	if w.one(12) {
		r.MaxLatency = &v1alpha1.LatencyBound{Milliseconds: int32(pick(w, 10, 30, 100)), From: pick(w, "", "c0")}
	}
	if w.one(2) {
		r.Near = places[1]
	}
	if w.one(12) {
		r.MaxDistance = pick(w, 100, 700, 9000)
	}
	if w.one(25) {
		r.Resources[v1alpha1.StorageResource("slow")] = 1 << 30
	}
	if w.one(3) {
		a := v1alpha1.Affinity{With: pick(w, v1alpha1.ScopeSpace, v1alpha1.ScopeApplication, v1alpha1.ScopePlatform), By: pick(w, v1alpha1.LabelRegion, v1alpha1.LabelCluster), Apart: w.one(2)}
		if !w.one(3) {
			a.Weight = int32(1 + w.IntN(3))
		}
		r.Affinity = append(r.Affinity, a)
	}
	if w.one(3) {
		o.wishes = append(o.wishes, w.rule(r.Consumer))
		r.Preferences = append(r.Preferences, placement.Preference{Rule: o.wishes[0].Rule, Weight: int32(1 + w.IntN(4))})
	}
	if w.one(5) {
		r.External = map[string]int32{}
		for _, c := range w.clusters {
			r.External[c.Name] = int32(w.IntN(101))
		}
	}
}

// components draws parts and links.
func (w *world) components(o *order) {
	r := &o.Request
	gold, _ := labels.Parse("class=gold")
	for i := range 1 + w.IntN(3) {
		c := placement.Component{Name: fmt.Sprintf("part-%d", i), Resources: placement.Resources{cpu: int64(1+w.IntN(5)) * 1000}, Moves: w.one(2)}
		c.LargestPods = w.pods(c.Resources)
		if w.one(4) {
			c.Selector = gold
		}
		if w.one(4) {
			c.Tier = v1alpha1.TierEdge
		}
		r.Components = append(r.Components, c)
	}
	for a := range r.Components {
		if b := w.IntN(len(r.Components)); a != b && w.one(2) {
			most := placement.AnyLatency
			if !w.one(4) {
				most = time.Duration(w.IntN(25)) * time.Millisecond
			}
			r.Links = append(r.Links, placement.Link{Between: [2]int{a, b}, Most: most})
		}
	}
}
