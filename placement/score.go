package placement

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Scores are what the scorers say of a cluster that fits, each from 0 to 100. All
// arithmetic is on integers and rounds down, so that a decision can be replayed on
// any machine.
type Scores struct {
	// Balance is 100 · (free − asked) / allocatable, averaged over the resources asked
	// for: what would be left over (kube-scheduler's NodeResourcesFit, LeastAllocated).
	Balance int32
	// Pack is 100 − Balance: the opposite wish (MostAllocated).
	Pack int32
	// Price is 100 · cheapest / price, where cheapest is the lowest price among the
	// clusters that fit. Only prices in one currency are compared: that of the maximum
	// price or, without one, that of most clusters that fit. Others score 0.
	Price int32
	// Latency is 100 · 50 ms / (50 ms + latency), so that 50 ms scores half and one
	// far-away cluster does not level the differences between near ones. Unknown
	// scores 0.
	Latency int32
	// Preference is 100 · satisfied / all, by the weights of the preferences that policies
	// state; 0 where they state none.
	Preference int32
}

// halfLatency is the latency that scores 50.
const halfLatency = 50 * time.Millisecond

// scorer scores clusters for one request.
type scorer struct {
	weights     v1alpha1.ScoreWeights
	needs       []need
	tariff      tariff
	tolerations []corev1.Toleration
	preferences []Preference
	preferred   int32 // sum of their weights
	facts       *facts
	// market returns the currency and the cheapest price among the clusters that fit.
	market func() (currency string, cheapest int64)
}

// need is an amount of a resource that has a column.
type need struct {
	name   corev1.ResourceName
	amount int64
	column int
}

func newScorer(r Request, s *Snapshot) *scorer {
	sc := &scorer{weights: r.weights(), tariff: newTariff(r, s), tolerations: r.Tolerations, preferences: r.Preferences, facts: r.facts()}
	for i := range sc.preferences {
		sc.preferred += sc.preferences[i].Weight
	}
	for _, n := range sc.tariff {
		if _, storage := storageClassOf(n.name); !storage {
			sc.needs = append(sc.needs, n)
		}
	}
	return sc
}

// cheapest finds the currency in which prices are compared and the lowest price in
// it among the clusters that fit.
func cheapest(r Request, t tariff, pages []*page, fits []set, current []candidate) (currency string, lowest int64) {
	if currency = commonCurrency(pages, fits, current); r.MaxPrice != nil {
		currency = r.MaxPrice.Currency
	}
	lowest = math.MaxInt64
	for i, p := range pages {
		for row := range fits[i].and(p.currency[currency]).rows() {
			lowest = min(lowest, t.nanoPerHour(p, row))
		}
	}
	for _, c := range current {
		if c.cluster().Currency == currency {
			lowest = min(lowest, t.nanoPerHour(c.page, c.row))
		}
	}
	return currency, lowest
}

// commonCurrency is the currency of most clusters that fit, the alphabetically
// first of several.
func commonCurrency(pages []*page, fits []set, current []candidate) string {
	count := map[string]int{}
	for _, c := range current {
		if currency := c.cluster().Currency; currency != "" {
			count[currency]++
		}
	}
	for i, p := range pages {
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

// score is the weighted mean of the scorers, divided by one more than the number of
// PreferNoSchedule taints that are not tolerated.
func (sc *scorer) score(at spot) int32 {
	w := sc.weights
	var sum int32
	if w.Balance != 0 {
		sum += w.Balance * sc.balance(at)
	}
	if w.Pack != 0 {
		sum += w.Pack * (100 - sc.balance(at))
	}
	if w.Price != 0 {
		sum += w.Price * sc.price(at)
	}
	if w.Latency != 0 {
		sum += w.Latency * latency(at)
	}
	if sc.preferred != 0 {
		sum += sc.preferred * sc.preference(at)
	}
	mean := sum / (w.Balance + w.Pack + w.Price + w.Latency + sc.preferred)
	if at.page.avoided.has(at.row) {
		mean /= 1 + sc.disliked(at)
	}
	return mean
}

// components are all scorers, whether they weigh anything or not.
func (sc *scorer) components(at spot) Scores {
	balance := sc.balance(at)
	return Scores{Balance: balance, Pack: 100 - balance, Price: sc.price(at), Latency: latency(at), Preference: sc.preference(at)}
}

func (sc *scorer) balance(at spot) int32 {
	if len(sc.needs) == 0 {
		return 100
	}
	var sum int64
	for _, n := range sc.needs {
		column := at.page.column(n.column)
		left := column.free[at.row] + at.held[n.name] - n.amount
		sum += percent(left, column.size[at.row])
	}
	return int32(sum / int64(len(sc.needs))) //nolint:gosec // at most 100
}

func (sc *scorer) price(at spot) int32 {
	currency, lowest := sc.market()
	if currency == "" || at.cluster().Currency != currency {
		return 0
	}
	price := sc.tariff.nanoPerHour(at.page, at.row)
	if price == 0 {
		return 100
	}
	return int32(percent(lowest, price)) //nolint:gosec // at most 100
}

// preference weighs the preferences that the cluster satisfies against all.
func (sc *scorer) preference(at spot) int32 {
	if sc.preferred == 0 {
		return 0
	}
	var one set
	one.add(at.row)
	var satisfied int32
	for i := range sc.preferences {
		p := &sc.preferences[i]
		if p.concerns(at.page, one) != (set{}) && p.satisfied(at.page, one, sc.facts) != (set{}) {
			satisfied += p.Weight
		}
	}
	return 100 * satisfied / sc.preferred
}

func latency(at spot) int32 {
	measured := at.cluster().Latency
	if measured <= 0 {
		return 0
	}
	return int32(percent(int64(halfLatency), int64(halfLatency+measured))) //nolint:gosec // at most 100
}

// disliked counts the PreferNoSchedule taints that are not tolerated.
func (sc *scorer) disliked(at spot) int32 {
	var n int32
	taints := at.cluster().Taints
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectPreferNoSchedule && !tolerated(sc.tolerations, &taints[i]) {
			n++
		}
	}
	return n
}

// percent is 100·part/whole rounded down, from 0 to 100.
func percent(part, whole int64) int64 {
	switch {
	case part <= 0 || whole <= 0:
		return 0
	case part >= whole:
		return 100
	case part > math.MaxInt64/100:
		return part / (whole / 100) // whole > part > 2^56: the error is far below one
	default:
		return 100 * part / whole
	}
}

// tariff is what a request buys, by the columns in which the prices are.
type tariff []need

func newTariff(r Request, s *Snapshot) tariff {
	var t tariff
	for _, name := range r.Resources.names() {
		if amount := r.Resources[name]; amount > 0 {
			t = append(t, need{name, amount, s.columnOf(name)})
		}
	}
	return t
}

// nanoPerHour is the price of the request on a cluster, in billionths of its
// currency's unit, each resource rounded up; what its price list leaves out is free.
func (t tariff) nanoPerHour(p *page, row int) int64 {
	var sum int64
	for _, n := range t {
		price := p.column(n.column).price[row]
		if price == 0 {
			continue
		}
		cost := mulDiv(n.amount, price, unitOf(n.name).priced())
		if sum += cost; sum < 0 || cost == math.MaxInt64 {
			return math.MaxInt64
		}
	}
	return sum
}

// priceOf is the price of the request on a cluster, nil where there is no price list.
func (t tariff) priceOf(at spot) *Price {
	if at.cluster().Currency == "" {
		return nil
	}
	return &Price{Currency: at.cluster().Currency, NanoPerHour: t.nanoPerHour(at.page, at.row)}
}
