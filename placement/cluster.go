package placement

import (
	"hash/fnv"
	"iter"
	"maps"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Cluster is a member cluster as the inventory knows it. Once in the inventory it is never
// changed, only replaced.
type Cluster struct {
	Name     string
	Driver   string
	Provider string
	Region   string
	// Labels for selectors, including those derived from the spec (v1alpha1.LabelRegion and others).
	Labels labels.Set
	Taints []corev1.Taint
	// Ready reports whether its API server answers. Unready is the reason if it does not.
	Ready   bool
	Unready string
	// AccessVerified reports whether Sluice has the rights there that its driver needs.
	// Unverified is a message with the cause if AccessVerified is false.
	AccessVerified bool
	Unverified     string
	// CapacityUnknown is the reason why it is not known how much the cluster has; empty if it is known.
	CapacityUnknown string
	// Unproven lists the facts that the provider must still prove; empty if there are none.
	Unproven string
	// Unguarded is the reason why rules for pods would not be enforced there; empty if they are, or never apply.
	Unguarded string
	// Claims about the cluster and its provider that are valid.
	Claims []v1alpha1.Claim
	// Cordoned clusters take no new placements.
	Cordoned bool
	// Allocatable on ready, schedulable nodes.
	Allocatable Resources
	// Sold is the limit of all that is reserved and used: Allocatable, or more if the provider
	// oversubscribes; nil means Allocatable.
	Sold Resources
	// Sell is the part that the provider holds back from sale; may be nil.
	Sell *v1alpha1.Sale
	// ForeignUse is the resources requested there by pods of no instance of this hub.
	ForeignUse Resources
	// Holes lists the free resources of its nodes, node by node; nil if unknown.
	Holes *Holes
	// StorageClasses of the cluster.
	StorageClasses []string
	// Currency of Prices; empty means that the cluster has no price list.
	Currency string
	// Prices in billionths of the currency's unit, per hour and unit of the price list.
	Prices map[corev1.ResourceName]int64
	// Latency of its API server; zero means unknown.
	Latency time.Duration
	// Latencies from other vantages.
	Latencies map[string]Measured
	// Location of the cluster; nil if unknown.
	Location *Location
	// ClaimsUntil is when the first of the claims ends; zero if none ends.
	ClaimsUntil time.Time
	// Consumers that own this cluster.
	Consumers []v1alpha1.ConsumerReference
	// Liqo is the cluster's role in peerings; nil if it has none.
	Liqo *v1alpha1.LiqoCluster
	// Pool describes the clusters that it stands for; nil if it is a cluster.
	Pool *Pool
	// Exposure is the way in for public ports; nil if there is none.
	Exposure *v1alpha1.ClusterExposure
	// Offers are the plans that may be ordered, by OfferedPlan.Name, if it stands for a broker.
	Offers map[string]v1alpha1.OfferedPlan
	// Withheld are the reasons why other plans of the broker may not be ordered, by the same names.
	Withheld map[string]string
	// Markets have the same plans, by the same names, as the market of a broker lists them that is a Sluice.
	Markets map[string]Market
	// Failures of orders of those plans lately, by the same names.
	Failures map[string]Failures
	// Removed is true while the operator removes the cluster from the inventory.
	Removed bool
}

// ClusterOf returns the Cluster for a MemberCluster's spec and status, at a time.
func ClusterOf(mc *v1alpha1.MemberCluster, now time.Time) *Cluster {
	c := &Cluster{
		Name:           mc.Name,
		Driver:         mc.DriverName(),
		Provider:       mc.Spec.Provider,
		Region:         mc.Region(),
		Labels:         labels.Set(mc.SelectorLabels()),
		Taints:         taintsOf(mc),
		Cordoned:       mc.Spec.Unschedulable || !mc.DeletionTimestamp.IsZero(),
		Allocatable:    ResourcesOf(mc.Status.Allocatable),
		ForeignUse:     ResourcesOf(mc.Status.ForeignUse),
		Holes:          holesFrom(mc.Status.Holes),
		StorageClasses: mc.Status.StorageClasses,
	}
	c.Ready, c.Unready = mc.Holds(v1alpha1.ConditionReachable)
	c.AccessVerified, c.Unverified = mc.Holds(v1alpha1.ConditionAccessVerified)
	if meta.IsStatusConditionFalse(mc.Status.Conditions, v1alpha1.ConditionCapacityKnown) {
		_, c.CapacityUnknown = mc.Holds(v1alpha1.ConditionCapacityKnown)
	}
	if mc.RunsPods() {
		_, c.Unguarded = mc.Holds(v1alpha1.ConditionRulesEnforced)
	}
	if mc.Spec.Trust != nil {
		c.Claims = claimsAt(mc.Status.Claims, now)
		_, c.Unproven = mc.Holds(v1alpha1.ConditionAdmitted)
	}
	for i := range c.Claims {
		if until := c.Claims[i].ExpiresAt; until != nil && (c.ClaimsUntil.IsZero() || until.Time.Before(c.ClaimsUntil)) {
			c.ClaimsUntil = until.Time
		}
	}
	c.Location, _ = locationOf(mc.Spec.Location) // the API has validated it
	if mc.Status.Latency != nil {
		c.Latency = mc.Status.Latency.Duration
	}
	c.Latencies = latenciesOf(mc, now)
	c.Sell = mc.Spec.Sell
	c.Removed = !mc.DeletionTimestamp.IsZero()
	if c.Exposure = mc.Spec.Exposure; c.Exposure != nil && c.Exposure.TCP != nil {
		c.Allocatable[v1alpha1.ResourcePublicPorts] = int64(c.Exposure.TCP.Len())
	}
	c.hide()
	c.oversubscribe(mc.Spec.Oversubscription)
	c.Consumers, c.Liqo = mc.Spec.Consumers, mc.Spec.Liqo
	c.Pool = poolOf(mc)
	if c.Driver == v1alpha1.DriverLiqo && c.Liqo == nil {
		c.Liqo = &v1alpha1.LiqoCluster{}
	}
	c.Offers, c.Withheld, c.Failures = offersOf(mc), withheldOf(mc), failuresOf(mc, now)
	c.Markets = marketsOf(mc, now)
	if prices := mc.Spec.Prices; prices != nil {
		c.Currency = prices.Currency
		c.Prices = make(map[corev1.ResourceName]int64, len(prices.PerHour))
		for name, price := range prices.PerHour {
			c.Prices[name] = price.ScaledValue(resource.Nano)
			if v1alpha1.CheckMoney(price, v1alpha1.MaxPricePerHour) != nil {
				c.Prices[name] = v1alpha1.MaxPricePerHour * 1_000_000_000 // what is no price is not for free
			}
		}
	}
	return c
}

// WithNodes returns the cluster as it would be with further nodes, by what each of them has for workloads.
func (c *Cluster) WithNodes(nodes []Resources) *Cluster {
	more := *c
	more.Allocatable, more.Sold = maps.Clone(c.Allocatable), maps.Clone(c.Sold)
	for _, node := range nodes {
		more.Allocatable.Add(node, 1)
		for name := range c.Sold { // in the same ratio
			more.Sold[name] += mulDiv(node[name], c.Sold[name], max(c.Allocatable[name], 1))
		}
	}
	if c.Holes != nil {
		more.Holes = c.Holes.with(nodes)
	}
	return &more
}

// resources yields the resources that the cluster has, that others use there, that it prices or of which there are
// reservations, some of them more than once.
func (c *Cluster) resources(reserved Resources) iter.Seq[corev1.ResourceName] {
	return func(yield func(corev1.ResourceName) bool) {
		for _, amounts := range []map[corev1.ResourceName]int64{c.Allocatable, c.ForeignUse, c.Prices, reserved} {
			for name := range amounts {
				if !yield(name) {
					return
				}
			}
		}
	}
}

// disturbs reports whether a new version of the cluster affects the instances on it: it answers
// again, its taints have changed, or it is being removed.
func (c *Cluster) disturbs(now *Cluster) bool {
	return !c.Ready && now.Ready || !c.Removed && now.Removed || !reflect.DeepEqual(c.Taints, now.Taints)
}

// IsForsaken has the meaning of v1alpha1.MemberCluster.IsForsaken.
func (c *Cluster) IsForsaken() bool { return v1alpha1.IsForsaken(c.Removed, c.Ready) }

// sameTraits reports whether two versions of a cluster differ in numbers only.
func (c *Cluster) sameTraits(other *Cluster) bool {
	like := *c
	like.Allocatable, like.Sold, like.Sell, like.ForeignUse, like.Holes = other.Allocatable, other.Sold, other.Sell, other.ForeignUse, other.Holes
	like.Prices, like.ClaimsUntil = other.Prices, other.ClaimsUntil
	like.Latency, like.Latencies, like.Location = other.Latency, other.Latencies, other.Location
	like.Unready, like.Unverified, like.Removed = other.Unready, other.Unverified, other.Removed
	return reflect.DeepEqual(&like, other)
}

// sameButNumbers reports whether two versions of a cluster differ at most in what there is, what is used and
// how far away it is.
func (c *Cluster) sameButNumbers(other *Cluster) bool {
	return c.sameTraits(other) && c.ClaimsUntil.Equal(other.ClaimsUntil) &&
		maps.Equal(c.Prices, other.Prices) && reflect.DeepEqual(c.Location, other.Location)
}

// sameLatency reports whether two versions of a cluster are as far away from everywhere.
func (c *Cluster) sameLatency(other *Cluster) bool {
	return c.Latency == other.Latency && maps.Equal(c.Latencies, other.Latencies)
}

// hash64 spreads names over 64 bits (FNV-1a, then the SplitMix64 finaliser).
func hash64(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return mix(h.Sum64())
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
