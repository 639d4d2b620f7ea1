package placement_test

import (
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// The filters and scores of docs/placement.md, cluster by cluster, without a line of the engine.

// oracle judges an order in a world.
type oracle struct {
	*world
	*order
	fitting map[question]bool
	scored  map[question]int64
}

// question about a cluster and a component, which is asked again and again.
type question struct {
	*placement.Cluster
	*placement.Component
}

func newOracle(w *world, o *order) *oracle {
	return &oracle{w, o, map[question]bool{}, map[question]int64{}}
}

// reserved returns the amount that others have reserved on a cluster.
func (o *oracle) reserved(c *placement.Cluster, name corev1.ResourceName) (sum int64) {
	for _, h := range o.held {
		if h.Instance != o.ID {
			sum += h.Held[c.Name][name]
		}
	}
	return sum
}

// sold returns the allocatable amount times the oversubscription, or the part for sale if the provider holds
// some back.
func sold(c *placement.Cluster, name corev1.ResourceName) (forSale, there int64) {
	there = c.Allocatable[name]
	if c.Sold != nil {
		there = c.Sold[name]
	}
	forSale = there
	if c.Sell != nil {
		if c.Sell.Share > 0 {
			forSale = there * int64(c.Sell.Share) / 100
		}
		if most, bounded := c.Sell.AtMost[name]; bounded {
			forSale = min(forSale, placement.ResourcesOf(corev1.ResourceList{name: most})[name])
		}
	}
	return forSale, there
}

// free returns the amount for sale that is neither used nor reserved; use by others counts first against the part
// held back. Reservations of the instance itself are free for it.
func (o *oracle) free(c *placement.Cluster, name corev1.ResourceName) int64 {
	forSale, there := sold(c, name)
	usedForSale := max(0, c.ForeignUse[name]-(there-forSale))
	return forSale - usedForSale - o.reserved(c, name)
}

// left returns the amount free for a component: reservations of the other components of its instance are free only
// on its own cluster.
func (o *oracle) left(c *placement.Cluster, component *placement.Component, name corev1.ResourceName) int64 {
	free := o.free(c, name)
	if component == nil || o.stays(c, component.Name) {
		return free
	}
	for _, h := range o.held {
		if h.Instance == o.ID {
			free -= h.Held[c.Name][name]
		}
	}
	return free
}

// stays reports whether the instance is on the cluster; filters for new placements do not apply then.
func (o *oracle) stays(c *placement.Cluster, component string) bool {
	if len(o.Components) > 0 {
		return o.ComponentClusters[component] == c.Name
	}
	return slices.Contains(o.Current, c.Name)
}

func (o *oracle) tolerates(t corev1.Taint) bool {
	return len(o.Tolerations) > 0 && t.Key == "dedicated"
}

// need of a cluster, a replica or a component.
func (o *oracle) need(component *placement.Component) placement.Resources {
	if component != nil {
		return component.Resources
	}
	return o.Resources
}

// shaped reports whether the cluster is one that the request is about, whatever its state is.
func (o *oracle) shaped(c *placement.Cluster, component *placement.Component) bool {
	tier := o.Tier
	if component != nil && component.Tier != "" {
		tier = component.Tier
	}
	switch {
	case c.Driver == v1alpha1.DriverCAPI, len(c.Consumers) > 0, !o.selected(c):
		return false
	case component != nil && component.Selector != nil && c.Labels["class"] != "gold":
		return false
	case tier != "" && c.Labels[v1alpha1.LabelTier] != string(tier):
		return false
	case slices.Contains(o.ExcludeProviders, c.Provider):
		return false
	}
	return o.Spread == nil || o.Spread.Weight > 0 || o.group(c) != ""
}

// group is the values of the labels that the request is spread by; empty if one is missing.
func (o *oracle) group(c *placement.Cluster) string {
	var values []string
	for _, label := range o.Spread.By {
		value, has := c.Labels[label]
		if !has {
			return ""
		}
		values = append(values, value)
	}
	return strings.Join(values, "/")
}

// fits applies the filters, once.
func (o *oracle) fits(c *placement.Cluster, component *placement.Component) bool {
	fits, known := o.fitting[question{c, component}]
	if !known {
		fits = o.passes(c, component)
		o.fitting[question{c, component}] = fits
	}
	return fits
}

func (o *oracle) passes(c *placement.Cluster, component *placement.Component) bool {
	name := ""
	if component != nil {
		name = component.Name
	}
	if !o.shaped(c, component) || slices.Contains(o.Leaving, c.Name) || !o.stays(c, name) && !(o.enters(c) && o.hasNodes(c, component)) {
		return false
	}
	if o.MaxDistance > 0 {
		if o.Near == nil || c.Location == nil || kilometers(o.Near, c.Location) > o.MaxDistance {
			return false
		}
	}
	for _, rule := range o.rules {
		if !rule.holds(c) {
			return false
		}
	}
	need := o.need(component)
	for _, resource := range countable {
		if need[resource] > 0 && o.left(c, component, resource) < need[resource] {
			return false
		}
	}
	if need[v1alpha1.StorageResource("slow")] > 0 && !slices.Contains(c.StorageClasses, "slow") {
		return false
	}
	if o.MaxPrice != nil {
		if cost, priced := o.price(c, need); !priced || c.Currency != o.MaxPrice.Currency || cost > o.MaxPrice.NanoPerHour {
			return false
		}
	}
	return o.affordsOn(c, component)
}

// enters applies the filters of new placements only.
func (o *oracle) enters(c *placement.Cluster) bool {
	if !c.Ready || !c.AccessVerified || c.CapacityUnknown != "" || c.Unproven != "" || c.Cordoned {
		return false
	}
	for _, taint := range c.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !o.tolerates(taint) {
			return false
		}
	}
	for _, a := range o.Affinity {
		if a.Weight == 0 && !o.near(a, c) {
			return false
		}
	}
	if o.MaxLatency != nil {
		if ms, known := o.latency(c); !known || ms > int64(o.MaxLatency.Milliseconds) {
			return false
		}
	}
	return true
}

// near reports whether an affinity holds of a cluster.
func (o *oracle) near(a v1alpha1.Affinity, c *placement.Cluster) bool {
	others := o.others(a.With, a.By)
	if len(others) == 0 {
		return true
	}
	value, has := c.Labels[a.By]
	return (has && others[value] > 0) != a.Apart
}

// others counts the other instances of a scope by the label of their clusters.
func (o *oracle) others(with v1alpha1.Scope, by string) map[string]int64 {
	name := func(c placement.Consumer) []string {
		switch with {
		case v1alpha1.ScopePlatform:
			return []string{c.Platform}
		case v1alpha1.ScopeOrganization:
			return []string{c.Platform, c.Organization}
		case v1alpha1.ScopeSpace:
			return []string{c.Platform, c.Space}
		}
		return []string{c.Platform, c.Space, c.Application}
	}
	mine, count := name(o.Consumer), map[string]int64{}
	if mine[len(mine)-1] == "" {
		return count
	}
	for _, h := range o.held {
		if h.Instance == o.ID || !slices.Equal(name(h.Consumer), mine) {
			continue
		}
		for cluster := range h.Held {
			if value, has := o.byName(cluster).Labels[by]; has {
				count[value]++
			}
		}
	}
	return count
}

func (w *world) byName(name string) *placement.Cluster {
	return w.clusters[slices.IndexFunc(w.clusters, func(c *placement.Cluster) bool { return c.Name == name })]
}

func (o *oracle) latency(c *placement.Cluster) (ms int64, known bool) {
	if o.MaxLatency != nil && o.MaxLatency.From != "" {
		measured, known := c.Latencies[o.MaxLatency.From]
		return measured.Median.Milliseconds(), known
	}
	return c.Latency.Milliseconds(), c.Latency > 0
}

func kilometers(a, b *placement.Location) int {
	rad := math.Pi / 180
	cosine := math.Sin(a.Latitude*rad)*math.Sin(b.Latitude*rad) + math.Cos(a.Latitude*rad)*math.Cos(b.Latitude*rad)*math.Cos((a.Longitude-b.Longitude)*rad)
	return int(math.Round(6371.0088 * math.Acos(min(cosine, 1))))
}

// score of a cluster that fits, computed once.
func (o *oracle) score(c *placement.Cluster, component *placement.Component) int64 {
	score, known := o.scored[question{c, component}]
	if !known {
		score = o.mean(c, component)
		o.scored[question{c, component}] = score
	}
	return score
}

func (o *oracle) mean(c *placement.Cluster, component *placement.Component) int64 {
	need := o.need(component)
	var balance, n int64
	for _, resource := range countable {
		if need[resource] > 0 {
			forSale, _ := sold(c, resource)
			balance, n = balance+share(o.left(c, component, resource)-need[resource], forSale), n+1
		}
	}
	if balance = balance / max(n, 1); n == 0 {
		balance = 100
	}
	w := o.weights()
	currency, lowest := o.market(component)
	var price, latency, locality, freshness, diversity, preference int64
	switch cost, priced := o.price(c, need); {
	case !priced || c.Currency != currency:
	case cost == 0:
		price = 100
	default:
		price = share(lowest, cost)
	}
	if ms, known := o.latency(c); known {
		latency = 100 * 50 / (50 + ms)
	}
	if o.Near != nil && c.Location != nil {
		locality = 100 * 500 / (500 + int64(kilometers(o.Near, c.Location)))
	}
	if len(c.Claims) > 0 {
		if freshness = 100; !c.ClaimsUntil.IsZero() {
			holds := int64(c.ClaimsUntil.Sub(o.At) / time.Hour)
			freshness = share(holds, holds+int64(month/time.Hour))
		}
	}
	with := v1alpha1.ScopeApplication
	if o.Consumer.Application == "" {
		with = v1alpha1.ScopeSpace
	}
	diversity = 100 / (1 + o.others(with, v1alpha1.LabelRegion)[c.Labels[v1alpha1.LabelRegion]])
	satisfied, preferred := o.preferred(c)
	if preferred > 0 {
		preference = 100 * satisfied / preferred
	}
	sum, weights := preferred*preference, preferred
	for _, part := range [][2]int64{
		{int64(w.Fit), o.fit(c, component)},
		{int64(w.Balance), balance},
		{int64(w.Pack), 100 - balance},
		{int64(w.Price), price},
		{int64(w.Latency), latency},
		{int64(w.Locality), locality},
		{int64(w.Freshness), freshness},
		{int64(w.Diversity), diversity},
		{int64(w.External), int64(o.External[c.Name])},
	} {
		sum, weights = sum+part[0]*part[1], weights+part[0]
	}
	mean := sum / max(weights, 1)
	for _, taint := range c.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule && !o.tolerates(taint) {
			return mean / 2
		}
	}
	return mean
}

// weights of the scores.
func (o *oracle) weights() v1alpha1.ScoreWeights {
	w := o.Weights
	if w == (v1alpha1.ScoreWeights{}) {
		w.Fit = 1
	}
	if o.External == nil {
		w.External = 0
	}
	return w
}

// preferred returns the weights of the preferences that hold of a cluster, and of all.
func (o *oracle) preferred(c *placement.Cluster) (satisfied, all int64) {
	for i, p := range o.Preferences {
		if all += int64(p.Weight); o.wishes[i].holds(c) {
			satisfied += int64(p.Weight)
		}
	}
	for _, a := range o.Affinity {
		if a.Weight > 0 {
			if all += int64(a.Weight); o.near(a, c) {
				satisfied += int64(a.Weight)
			}
		}
	}
	return satisfied, all
}

// share is 100·part/whole, rounded down, from 0 to 100.
func share(part, whole int64) int64 {
	if part <= 0 || whole <= 0 {
		return 0
	}
	return min(100*part/whole, 100)
}
