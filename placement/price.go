package placement

import (
	"math"
	"math/bits"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Price is an amount of money per hour, exact to a billionth of the currency's unit.
type Price struct {
	// Currency as an ISO 4217 code.
	Currency string `json:"currency"`
	// NanoPerHour is the price of one hour in billionths of the currency's unit.
	NanoPerHour int64 `json:"nanoPerHour"`
}

// PriceOf converts a plan's price; nil stays nil.
func PriceOf(p *v1alpha1.Price) *Price {
	if p == nil {
		return nil
	}
	if p.PerMonth != nil {
		return &Price{Currency: p.Currency, NanoPerHour: p.PerMonth.ScaledValue(resource.Nano) / v1alpha1.HoursPerMonth}
	}
	return &Price{Currency: p.Currency, NanoPerHour: p.PerHour.ScaledValue(resource.Nano)}
}

// quantity converts the amount for the API.
func (p Price) quantity() *resource.Quantity {
	return resource.NewScaledQuantity(p.NanoPerHour, resource.Nano)
}

// times returns the price of n; nil stays nil.
func (p *Price) times(n int64) *Price {
	if p == nil || n == 1 {
		return p
	}
	return &Price{p.Currency, mulDiv(p.NanoPerHour, n, 1)}
}

// sumOf returns the sum of prices; nil if one is nil, or in another currency.
func sumOf(prices ...*Price) (sum *Price) {
	for _, one := range prices {
		switch {
		case one == nil, sum != nil && sum.Currency != one.Currency:
			return nil
		case sum == nil:
			sum = &Price{Currency: one.Currency}
		}
		sum.NanoPerHour += one.NanoPerHour
	}
	return sum
}

// String formats the price, for instance "0.35 EUR/h".
func (p Price) String() string { return FormatMoney(*p.quantity(), p.Currency) + "/h" }

// FormatMoney formats an amount of money, for instance "0.01325 EUR", exact to a billionth.
func FormatMoney(amount resource.Quantity, currency string) string {
	return strconv.FormatFloat(float64(amount.ScaledValue(resource.Nano))/1e9, 'f', -1, 64) + " " + currency
}

// mulDiv returns a*b/c rounded up, exact even if a*b exceeds 64 bits, and the largest int64 if
// the result does. It requires a and b ≥ 0 and c > 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b)) // not negative
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	hi += carry
	if hi >= uint64(c) { // positive
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(hi, lo, uint64(c)) // positive
	return int64(min(quotient, math.MaxInt64))   // bounded
}

// tariff is amounts that a request buys, by the columns of the prices, and what brokers take for the whole.
type tariff struct {
	needs []need
	whole *Upstream // nil for requests that are not ordered from brokers
}

// tariff returns the tariff for a part of the request.
func (r Request) tariff(bought Resources, s *Snapshot) tariff {
	t := tariff{whole: r.Upstream}
	for _, name := range bought.names() {
		if amount := bought[name]; amount > 0 {
			t.needs = append(t.needs, need{name, amount, s.columnOf(name), unitOf(name).priced()})
		}
	}
	return t
}

// nanoPerHour returns the price of the request on a cluster, in billionths of its currency's
// unit, each resource rounded up. Resources that are not in the price list are free.
func (t tariff) nanoPerHour(p *page, row int) int64 {
	if t.whole != nil {
		if price, ok := t.whole.price(p.clusters[row]); ok {
			return price.NanoPerHour
		}
	}
	var sum int64
	for _, n := range t.needs {
		price := p.column(n.column).price[row]
		if price == 0 {
			continue
		}
		cost := mulDiv(n.amount, price, n.priced)
		if sum += cost; sum < 0 || cost == math.MaxInt64 {
			return math.MaxInt64
		}
	}
	return sum
}

// price returns the price of a candidate with its replicas; nil if its cluster has no price list.
func (e *evaluation) price(c candidate) *Price {
	price := e.scorer.tariff.priceOf(c.position)
	if len(e.request.Common) == 0 || price == nil || c.replicas < 2 {
		return price.times(max(c.replicas, 1))
	}
	further := e.request.tariff(e.request.Resources, e.snapshot).priceOf(c.position).times(c.replicas - 1)
	return &Price{price.Currency, price.NanoPerHour + further.NanoPerHour}
}

// currency returns the currency of the request's price on a cluster; "" if it has none.
func (t tariff) currency(at position) string {
	if t.whole != nil {
		if price, ok := t.whole.price(at.cluster()); ok {
			return price.Currency
		}
	}
	return at.cluster().Currency
}

// priced returns the rows of a page with a price in a currency.
func (t tariff) priced(p *page, currency string) set {
	rows := p.currency[currency]
	if t.whole == nil {
		return rows
	}
	return rows.without(p.brokers).or(p.brokers.where(func(row int) bool { return t.currency(position{page: p, row: row}) == currency }))
}

// priceOf returns the price of the request on a cluster, nil if it has none.
func (t tariff) priceOf(at position) *Price {
	currency := t.currency(at)
	if currency == "" {
		return nil
	}
	return &Price{Currency: currency, NanoPerHour: t.nanoPerHour(at.page, at.row)}
}

// cheapest returns the lowest price in a currency among the clusters that fit.
func cheapest(currency string, t tariff, pages []*page, fits []set, current []candidate) (lowest int64) {
	lowest = math.MaxInt64
	for i, p := range pages {
		for row := range fits[i].and(t.priced(p, currency)).rows() {
			lowest = min(lowest, t.nanoPerHour(p, row))
		}
	}
	for _, c := range current {
		if t.currency(c.position) == currency {
			lowest = min(lowest, t.nanoPerHour(c.page, c.row))
		}
	}
	return lowest
}

// commonCurrency returns the currency of most clusters that fit; of several, the alphabetically
// first.
func commonCurrency(t tariff, pages []*page, fits []set, current []candidate) string {
	count := map[string]int{}
	for _, c := range current {
		if currency := t.currency(c.position); currency != "" {
			count[currency]++
		}
	}
	for i, p := range pages {
		if t.whole != nil {
			for row := range fits[i].rows() {
				if currency := t.currency(position{page: p, row: row}); currency != "" {
					count[currency]++
				}
			}
			continue
		}
		for currency, rows := range p.currency {
			count[currency] += fits[i].and(rows).len()
		}
	}
	common := ""
	for currency, n := range count {
		if common == "" || n > count[common] || n == count[common] && currency < common {
			common = currency
		}
	}
	return common
}
