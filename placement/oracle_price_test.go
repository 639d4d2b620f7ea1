package placement_test

import (
	"math"

	"github.com/sluice-dev/sluice/placement"
)

// price of the need on a cluster, in billionths; false without a price list.
func (o *oracle) price(c *placement.Cluster, need placement.Resources) (int64, bool) {
	return need[cpu]/1000*c.Prices[cpu] + need[memory]>>30*c.Prices[memory], c.Currency != ""
}

// market returns the currency in which prices are compared, that of most clusters that fit or of the maximum price, and
// the lowest price.
func (o *oracle) market(component *placement.Component) (currency string, lowest int64) {
	count := map[string]int{}
	for _, c := range o.clusters {
		if c.Currency != "" && o.fits(c, component) {
			count[c.Currency]++
		}
	}
	for _, name := range []string{"EUR", "USD"} {
		if count[name] > count[currency] {
			currency = name
		}
	}
	if o.MaxPrice != nil {
		currency = o.MaxPrice.Currency
	}
	lowest = math.MaxInt64
	for _, c := range o.clusters {
		if cost, _ := o.price(c, o.need(component)); c.Currency == currency && o.fits(c, component) {
			lowest = min(lowest, cost)
		}
	}
	return currency, lowest
}
