package placement

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Unreserved returns the amount of a resource that would be free without any reservation: the part
// for sale, minus the foreign use that exceeds the part held back.
func (c *Cluster) Unreserved(name corev1.ResourceName) int64 {
	return min(c.sold(name), c.there(name)-c.ForeignUse[name])
}

// oversubscribe raises the amounts that the cluster sells by ratios of at least 1, exact to a
// thousandth. A public port has one holder, so a ratio of these is ignored.
func (c *Cluster) oversubscribe(ratios map[corev1.ResourceName]resource.Quantity) {
	for name, ratio := range ratios {
		if thousandths := ratio.MilliValue(); thousandths > 1000 && name != v1alpha1.ResourcePublicPorts {
			if c.Sold == nil {
				c.Sold = maps.Clone(c.Allocatable)
			}
			c.Sold[name] = mulDiv(c.Allocatable[name], thousandths, 1000)
		}
	}
}

// there returns how much may be reserved and used in total.
func (c *Cluster) there(name corev1.ResourceName) int64 {
	if c.Sold != nil {
		return c.Sold[name]
	}
	return c.Allocatable[name]
}

// sold returns the amount that may be reserved: everything except the part that the provider holds
// back.
func (c *Cluster) sold(name corev1.ResourceName) int64 {
	sold := c.there(name)
	if c.Sell != nil {
		sold = atMost(c.Sell, name, shareOf(c.Sell, sold))
	}
	return sold
}

// shareOf is the first stage of a sale: the part of an amount that is sold, rounded down.
func shareOf(s *v1alpha1.Sale, amount int64) int64 {
	percent := int64(s.Share)
	if percent == 0 {
		return amount
	}
	return amount/100*percent + amount%100*percent/100
}

// atMost is the second stage: an amount within the limit of its resource.
func atMost(s *v1alpha1.Sale, name corev1.ResourceName, amount int64) int64 {
	if most, bounded := s.AtMost[name]; bounded {
		return min(amount, amountOf(name, most))
	}
	return amount
}

// hide is the third stage: it removes the resources that the provider hides.
func (c *Cluster) hide() {
	if c.Sell == nil {
		return
	}
	for _, name := range c.Sell.Hide {
		delete(c.Allocatable, name)
		delete(c.ForeignUse, name)
		if class, is := v1alpha1.StorageClassOf(name); is {
			c.StorageClasses = slices.DeleteFunc(slices.Clone(c.StorageClasses), func(has string) bool { return has == class })
		}
	}
}

// ForSale returns how much of a resource a member cluster sells in total. heldBack reports
// whether that is less than it has.
func ForSale(mc *v1alpha1.MemberCluster, name corev1.ResourceName) (sold resource.Quantity, heldBack bool) {
	c := ClusterOf(mc, time.Time{})
	return Resources{name: c.sold(name)}.List()[name], c.sold(name) < c.there(name)
}

// showSold formats how much may be reserved, for instance "16", "24 (of 16, oversubscribed)" or
// "8 for sale (of 16)".
func (c *Cluster) showSold(name corev1.ResourceName) string {
	sold, has := show(name, c.sold(name)), show(name, c.Allocatable[name])
	switch {
	case c.sold(name) < c.there(name):
		return sold + " for sale (of " + has + ")"
	case sold != has:
		return sold + " (of " + has + ", oversubscribed)"
	}
	return has
}
