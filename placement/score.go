package placement

import (
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Scores are the results of the scorers for a cluster that fits, each from 0 to 100. All
// arithmetic is on integers and rounds down, so that a decision can be replayed on any machine.
type Scores struct {
	// Balance is 100 · (free − requested) / for sale, averaged over the requested resources:
	// the share that would remain free (kube-scheduler's NodeResourcesFit, LeastAllocated).
	Balance int32 `json:"balance"`
	// Fit is 100 less what the order would waste there: scarce resources that it strands or does not
	// need, cores and memory in the wrong proportion, and room for a larger order.
	Fit int32 `json:"fit"`
	// Pack is 100 − Balance: the opposite preference (MostAllocated).
	Pack int32 `json:"pack"`
	// Price is 100 · cheapest / price, where cheapest is the lowest price among the
	// clusters that fit. Only prices in one currency are compared: that of the maximum
	// price or, without one, that of most clusters that fit. Others score 0.
	Price int32 `json:"price"`
	// Latency is 100 · 50 ms / (50 ms + latency). So 50 ms scores half, and one far-away
	// cluster does not hide the differences between near ones. Unknown scores 0.
	Latency int32 `json:"latency"`
	// Preference is 100 · satisfied / all, by the weights of the preferences of policies and
	// affinities; 0 if there are none.
	Preference int32 `json:"preference"`
	// Locality is 100 · 500 km / (500 km + distance from the consumer). Unknown scores 0.
	Locality int32 `json:"locality"`
	// Freshness is 100 · d / (30 days + d), where d is how long all claims about the cluster
	// remain valid, and 100 if they do not end; 0 if there are no claims.
	Freshness int32 `json:"freshness"`
	// Diversity is 100 / (1 + n), where n is the number of other instances of the same
	// application, or space, in the cluster's region; 0 if diversity has no weight.
	Diversity int32 `json:"diversity"`
	// External is the score of the scorer outside Sluice; 0 if there is none.
	External int32 `json:"external"`
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
	preferred   int64 // sum of their weights
	total       int64 // of all weights
	weighted    []weighted
	facts       *facts
	wishes      []wish
	latency     *v1alpha1.LatencyBound
	near        *Location
	now         time.Time
	crowd       map[string]int32
	external    map[string]int32
	// entered is the page whose rows' scores are computed, and their balances if these have a
	// weight.
	entered     *page
	enteredRows set
	*rowScores
	// alone has the scores if no other scorer has a weight; nil if several have.
	alone *[pageRows]int32
	// fit is made when it is first needed, because it reads all clusters.
	fit func() *fit
	// upstream has the orders from brokers; nil if there are none.
	upstream *Upstream
	// currency in which prices are compared, empty if there is none, and the cheapest price in
	// it among the clusters that fit.
	currency func() string
	cheapest func() int64
	// pricedPage is the page that comparable was last asked about, and its rows with such prices.
	pricedPage *page
	pricedRows set
	// crowdedPage is the page that diversity was last asked about, and its regions.
	crowdedPage *page
	regions     *grouping
}

// rowScores has the scores of a page's rows, and the weight of the preferences that each of them meets.
type rowScores struct {
	balances, fits, scores [pageRows]int32
	satisfied              [pageRows]int64
}

// need is an amount of a resource with a column.
type need struct {
	name   corev1.ResourceName
	amount int64
	column int
	priced int64 // amount that a price is for
}

// newScorer returns the scorer of a request, with memory for a page, which may have any content.
func newScorer(r Request, s *Snapshot, memory *rowScores) *scorer {
	sc := &scorer{
		rowScores: memory,
		weights:   r.weights(), tariff: r.tariff(r.on(1), s), tolerations: r.Tolerations, preferences: r.Preferences, facts: r.facts(),
		wishes: r.wishes(s), latency: r.MaxLatency, near: r.Near, now: r.At, external: r.External, upstream: r.Upstream,
	}
	if ofHubs := func(p Preference) bool { return p.appliesTo == v1alpha1.RuleHubs }; slices.ContainsFunc(sc.preferences, ofHubs) {
		sc.preferences = slices.DeleteFunc(slices.Clone(sc.preferences), ofHubs)
	}
	for i := range sc.preferences {
		sc.preferred += int64(sc.preferences[i].Weight)
	}
	for i := range sc.wishes {
		sc.preferred += int64(sc.wishes[i].Weight)
	}
	if sc.weights.Diversity != 0 {
		sc.crowd = r.neighbours(s, r.region())
	}
	if sc.external == nil {
		sc.weights.External = 0 // no answer, so no score
	}
	for i := range scorers {
		if weight := sc.weightOf(&scorers[i]); weight != 0 {
			sc.weighted, sc.total = append(sc.weighted, weighted{weight, scorers[i].of}), sc.total+weight
		}
	}
	switch sc.total {
	case 0:
	case int64(sc.weights.Fit):
		sc.alone = &sc.fits
	case int64(sc.weights.Balance):
		sc.alone = &sc.balances
	}
	if sc.upstream != nil {
		sc.alone = nil // what failed lately counts, too
	}
	for _, n := range sc.tariff.needs {
		if _, storage := v1alpha1.StorageClassOf(n.name); !storage {
			sc.needs = append(sc.needs, n)
		}
	}
	sc.fit = sync.OnceValue(func() *fit { return newFit(sc.needs, s) })
	return sc
}

// cost returns the price of the request on a cluster in billionths per hour, or the largest
// number if it has no price in the currency in which prices are compared.
func (sc *scorer) cost(at position) int64 {
	switch {
	case sc.currency() == "":
		return 0
	case !sc.comparable(at):
		return math.MaxInt64
	}
	return sc.tariff.nanoPerHour(at.page, at.row)
}

// comparable reports whether a cluster has a price list in the currency in which prices are
// compared.
func (sc *scorer) comparable(at position) bool {
	if at.page != sc.pricedPage {
		sc.pricedPage, sc.pricedRows = at.page, sc.tariff.priced(at.page, sc.currency())
	}
	return sc.pricedRows.has(at.row)
}

// score returns the weighted mean of the scorers, divided by one more than the number of
// PreferNoSchedule taints that are not tolerated, and of orders that failed there lately.
func (sc *scorer) score(at position) int32 {
	var sum int64
	for _, one := range sc.weighted {
		sum += one.weight * int64(one.of(sc, at))
	}
	mean := int32(sum / max(sc.total, 1)) // at most 100
	if at.page.avoided.has(at.row) {
		mean /= 1 + sc.disliked(at)
	}
	if sc.upstream != nil {
		mean = mean * 100 / (100 + sc.upstream.failures(at.cluster()).Weight)
	}
	return mean
}

// enter computes the scores of a page's rows, the balances one column after the other, which is
// several times faster than one row after the other.
func (sc *scorer) enter(p *page, rows set) {
	if rows == (set{}) {
		return
	}
	sc.entered, sc.enteredRows = p, rows
	if sc.weights.Balance != 0 || sc.weights.Pack != 0 {
		sc.enterBalances(p, rows)
	}
	if sc.preferred != 0 {
		sc.enterPreferences(p, rows)
	}
	if sc.weights.Fit != 0 {
		fit := sc.fit()
		for row := range rows.rows() {
			sc.fits[row] = fit.score(position{page: p, row: row})
		}
	}
	if sc.alone != nil && rows.and(p.avoided) == (set{}) {
		sc.scores = *sc.alone // all rows cost less than selecting some
		return
	}
	for row := range rows.rows() {
		sc.scores[row] = sc.score(position{page: p, row: row})
	}
}

func (sc *scorer) fitting(at position) int32 {
	if at.page == sc.entered && sc.enteredRows.has(at.row) && at.held == nil && sc.weights.Fit != 0 {
		return sc.fits[at.row]
	}
	return sc.fit().score(at)
}

func (sc *scorer) enterBalances(p *page, rows set) {
	balances := &sc.balances
	if len(sc.needs) == 0 {
		for row := range rows.rows() {
			balances[row] = 100
		}
		return
	}
	for i, n := range sc.needs {
		column := p.column(n.column)
		for row := range rows.rows() {
			left := int32(percent(column.free[row]-n.amount, column.size[row])) // at most 100
			if i > 0 {
				left += balances[row]
			}
			balances[row] = left
		}
	}
	if n := int32(len(sc.needs)); n > 1 { // a few resources
		for row := range rows.rows() {
			balances[row] /= n
		}
	}
}

func (sc *scorer) balance(at position) int32 {
	if len(sc.needs) == 0 {
		return 100
	}
	if at.page == sc.entered && sc.enteredRows.has(at.row) && at.held == nil && (sc.weights.Balance != 0 || sc.weights.Pack != 0) {
		return sc.balances[at.row]
	}
	var sum int64
	for _, n := range sc.needs {
		column := at.page.column(n.column)
		left := column.free[at.row] + at.held[n.name] - n.amount
		sum += percent(left, column.size[at.row])
	}
	return int32(sum / int64(len(sc.needs))) // at most 100
}

func (sc *scorer) price(at position) int32 {
	if !sc.comparable(at) {
		return 0
	}
	price := sc.tariff.nanoPerHour(at.page, at.row)
	if price == 0 {
		return 100
	}
	return int32(percent(sc.cheapest(), price)) // at most 100
}

// preference returns the weight of the preferences that the cluster meets, as a share of all.
func (sc *scorer) preference(at position) int32 {
	if sc.preferred == 0 {
		return 0
	}
	if at.page != sc.entered || !sc.enteredRows.has(at.row) {
		var one set
		one.add(at.row)
		sc.enter(at.page, one)
	}
	return int32(100 * sc.satisfied[at.row] / sc.preferred) // at most 100
}

// enterPreferences adds up, for a page's rows, the weights of the preferences that they meet.
func (sc *scorer) enterPreferences(p *page, rows set) {
	clear(sc.satisfied[:])
	for i := range sc.preferences {
		one := &sc.preferences[i]
		for row := range one.satisfied(p, one.concerns(p, rows), sc.facts).rows() {
			sc.satisfied[row] += int64(one.Weight)
		}
	}
	for i := range sc.wishes {
		for row := range sc.wishes[i].granted(p, rows).rows() {
			sc.satisfied[row] += int64(sc.wishes[i].Weight)
		}
	}
}

func (sc *scorer) pack(at position) int32 { return 100 - sc.balance(at) }

// freshness returns the score for the validity of the claims about a cluster.
func (sc *scorer) freshness(at position) int32 {
	const month = 30 * 24 * time.Hour
	c := at.cluster()
	switch left := c.ClaimsUntil.Sub(sc.now).Truncate(time.Hour); {
	case len(c.Claims) == 0:
		return 0
	case c.ClaimsUntil.IsZero():
		return 100
	case left <= 0:
		return 0
	default:
		return int32(percent(int64(left/time.Hour), int64((left+month)/time.Hour))) // at most 100
	}
}

// diversity returns the score for spreading the consumer's instances over regions.
func (sc *scorer) diversity(at position) int32 {
	if sc.crowd == nil {
		return 0
	}
	if at.page != sc.crowdedPage {
		sc.crowdedPage, sc.regions = at.page, at.page.groups([]string{v1alpha1.LabelRegion})
	}
	if region := sc.regions.of[at.row]; region >= 0 {
		return 100 / (1 + sc.crowd[sc.regions.names[region]])
	}
	return 100
}

// outside returns the external score.
func (sc *scorer) outside(at position) int32 { return min(max(sc.external[at.cluster().Name], 0), 100) }

// nearness returns the score of the latency.
func (sc *scorer) nearness(at position) int32 {
	measured, known := latencyOf(at.cluster(), sc.latency, sc.now)
	if !known {
		return 0
	}
	return int32(percent(int64(halfLatency), int64(halfLatency+measured))) // at most 100
}

// disliked counts the PreferNoSchedule taints that are not tolerated.
func (sc *scorer) disliked(at position) int32 {
	var n int32
	taints := at.cluster().Taints
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectPreferNoSchedule && !tolerated(sc.tolerations, &taints[i]) {
			n++
		}
	}
	return n
}

// percent returns 100·part/whole rounded down, from 0 to 100.
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
