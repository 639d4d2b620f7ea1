package placement

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Quota limits what a consumer's platform, organization or space holds on all clusters
// together.
type Quota struct {
	// By is the source of the quota, for instance "policy small-spaces".
	By  string
	Per v1alpha1.Scope
	// Limits by resource, and by the names of what is counted beside resources: instancesHeld, and one price.
	Limits Resources
	// WarnAt is the percentage of a limit from which on there is a warning; zero means none.
	WarnAt int32
}

// instancesHeld is the number of instances with reservations, among resources. No resource has a space in its name.
const instancesHeld corev1.ResourceName = "service instances"

// pricePrefix and a currency name a sum of prices in billionths an hour, among resources.
const pricePrefix = "price in "

func priceIn(currency string) corev1.ResourceName { return corev1.ResourceName(pricePrefix + currency) }

// counted returns the price as quotas count it; nil stays nil.
func (p *Price) counted() Resources {
	if p == nil {
		return nil
	}
	return Resources{priceIn(p.Currency): p.NanoPerHour}
}

// quotaOf converts the quota of a policy, without that of bindings, which are not placed.
func quotaOf(by string, from *v1alpha1.Quota) Quota {
	q := Quota{By: by, Per: from.Per, Limits: ResourcesOf(from.Limits), WarnAt: from.WarnAt}
	if from.Instances != nil {
		q.Limits[instancesHeld] = int64(*from.Instances)
	}
	q.Limits.Add(PriceOf(from.Budget).counted(), 1)
	return q
}

// refuses returns that a holder would have more than a limit, with the numbers.
func (q *Quota) refuses(name corev1.ResourceName, others, asked int64) string {
	return fmt.Sprintf("%s allows each %s %s: %s are held, %s asked for", q.By, q.Per, showWith(name, q.Limits[name]), showHeld(name, others), showHeld(name, asked))
}

// showWith formats an amount with what it is of: "8 cpu", "100 EUR a month".
func showWith(name corev1.ResourceName, amount int64) string {
	if _, isPrice := strings.CutPrefix(string(name), pricePrefix); isPrice {
		return showHeld(name, amount) + " a month"
	}
	return showHeld(name, amount) + " " + string(name)
}

// showHeld formats an amount; a price for a month, rounded to a ten-thousandth.
func showHeld(name corev1.ResourceName, amount int64) string {
	if currency, isPrice := strings.CutPrefix(string(name), pricePrefix); isPrice {
		const rounded = 1e5 // billionths
		month := mulDiv(amount, v1alpha1.HoursPerMonth, 1)
		return FormatMoney(*resource.NewScaledQuantity(month/rounded+(month%rounded+rounded/2)/rounded, -4), currency)
	}
	return show(name, amount)
}

// own returns what the request's instance has reserved already, as quotas count it.
func (r Request) own(s *Snapshot) Resources {
	own := Resources{}
	for _, held := range rows[Reservation](s.store, tableReservation, indexOf, r.ID, "") {
		own.Add(held.Resources, 1)
		own.Add(held.Prices, 1)
		own[instancesHeld] = 1
	}
	return own
}

// counted returns the reservations of an instance as quotas count them.
func (h *Holding) counted() Resources {
	sum := Resources{}
	for cluster, held := range h.Held {
		sum.Add(held, 1)
		sum.Add(h.Prices[cluster], 1)
		sum[instancesHeld] = 1
	}
	return sum
}

// others returns what the other instances hold that share a quota with the request; false if the quota does not concern
// it, because the consumer has no name in its scope.
func (q *Quota) others(r Request, s *Snapshot, own Resources) (others Resources, concerned bool) {
	holder := r.Consumer.holder(q.Per)
	if holder == "" {
		return nil, false
	}
	others = Resources{}
	if h := row[holding](s.store, tableHolding, holder); h != nil && !r.atBest {
		for name := range q.Limits {
			others[name] = max(h.Resources[name]-own[name], 0)
		}
	}
	return others, true
}

// exceeded returns the first quota that the request would exceed on any clusters, with the numbers; the
// request's own reservations count as free, and what asks for no more than it has is not refused. Empty means none.
func (r Request) exceeded(s *Snapshot) string {
	if len(r.Quotas) == 0 {
		return ""
	}
	own := r.own(s)
	asked := r.total(r.width(s)).max(Resources{instancesHeld: 1})
	for i := range r.Quotas {
		quota := &r.Quotas[i]
		others, concerned := quota.others(r, s, own)
		if !concerned {
			continue
		}
		for _, name := range quota.Limits.names() {
			if asked[name] > own[name] && others[name]+asked[name] > quota.Limits[name] {
				return quota.refuses(name, others[name], asked[name])
			}
		}
	}
	return ""
}

// overspends returns the first budget that placements would exceed, with the numbers; empty if there is none.
func (r Request) overspends(placements []Placement, s *Snapshot) string {
	prices := Resources{}
	for i := range placements {
		prices.Add(placements[i].Price.counted(), 1)
	}
	for _, b := range r.budgets(s) {
		if prices[b.name] > b.left {
			return b.quota.refuses(b.name, b.others, prices[b.name])
		}
	}
	return ""
}

// budget is the part of a quota that is left for the request to spend.
type budget struct {
	quota *Quota
	name  corev1.ResourceName
	// others is the price of the others' reservations, and left that which remains, both in billionths an hour.
	others, left int64
}

func (b *budget) currency() string { return strings.TrimPrefix(string(b.name), pricePrefix) }

// budgets returns the budgets that concern the request. An instance keeps what it has, even if a budget was lowered.
func (r Request) budgets(s *Snapshot) (budgets []budget) {
	var own Resources
	for i := range r.Quotas {
		quota := &r.Quotas[i]
		for name, limit := range quota.Limits {
			if !strings.HasPrefix(string(name), pricePrefix) {
				continue
			}
			if own == nil {
				own = r.own(s)
			}
			if others, concerned := quota.others(r, s, own); concerned {
				budgets = append(budgets, budget{quota, name, others[name], max(limit-others[name], own[name])})
			}
		}
	}
	return budgets
}

// withinBudgets returns the filters that reject clusters with prices in another currency than a budget, and those that
// cost more than it leaves.
func (r Request) withinBudgets(s *Snapshot, needs Resources) (filters []filter) {
	for _, b := range r.budgets(s) {
		tariff := r.tariff(needs, s)
		filters = append(filters, otherCurrency(b, tariff), overBudget(b, tariff))
	}
	return filters
}

func otherCurrency(b budget, t tariff) filter {
	return filter{reason: ReasonNoPrice, entry: true,
		rejects: func(p *page, among set) set {
			return among.where(func(row int) bool {
				currency := t.currency(position{page: p, row: row})
				return currency != "" && currency != b.currency()
			})
		},
		message: func(p *page, row int) string {
			return fmt.Sprintf("has prices in %s, and %s has a budget in %s", t.currency(position{page: p, row: row}), b.quota.By, b.currency())
		},
	}
}

func overBudget(b budget, t tariff) filter {
	return filter{reason: ReasonOverBudget,
		rejects: func(p *page, among set) set {
			return among.and(t.priced(p, b.currency())).where(func(row int) bool { return t.nanoPerHour(p, row) > b.left })
		},
		message: func(p *page, row int) string { return b.quota.refuses(b.name, b.others, t.nanoPerHour(p, row)) },
	}
}

// unaffordable returns the budget because of which clusters were rejected that would have fitted otherwise, with the
// numbers of the cheapest; empty if there is none.
func (e *evaluation) unaffordable() (why string) {
	lowest := int64(math.MaxInt64)
	consider := func(f filter, p *page, row int) {
		if price := e.scorer.tariff.nanoPerHour(p, row); f.reason == ReasonOverBudget && (why == "" || price < lowest) {
			lowest, why = price, f.message(p, row)
		}
	}
	for _, l := range e.lost {
		if l.page != nil {
			consider(l.filter, l.page, l.row)
		}
	}
	for f, refused := range e.refused {
		if e.filters[f].reason != ReasonOverBudget {
			continue
		}
		for i, rows := range refused {
			for row := range rows.rows() {
				consider(e.filters[f], e.pages[i], row)
			}
		}
	}
	return why
}

// nears returns the quotas that warn because of placements: with these, the consumer has as much as the quota warns at,
// and with what is recorded it has not. It requires the newest snapshot, so that each of several orders counts the others.
func (r Request) nears(placements []Placement, s *Snapshot) (warnings []string) {
	if !slices.ContainsFunc(r.Quotas, func(q Quota) bool { return q.WarnAt > 0 }) {
		return nil
	}
	own, now := r.own(s), Resources{instancesHeld: 1}
	for i := range placements {
		now.Add(placements[i].Reserved, 1)
		now.Add(placements[i].Price.counted(), 1)
	}
	now = now.max(own)
	had := own
	if r.Recorded != nil {
		had = r.Recorded.counted()
	}
	for i := range r.Quotas {
		quota := &r.Quotas[i]
		others, concerned := quota.others(r, s, own)
		if !concerned || quota.WarnAt == 0 {
			continue
		}
		for _, name := range quota.Limits.names() {
			least := mulDiv(quota.Limits[name], int64(quota.WarnAt), 100)
			if before, after := others[name]+had[name], others[name]+now[name]; quota.Limits[name] > 0 && before < least && after >= least {
				warnings = append(warnings, fmt.Sprintf("%s allows each %s %s: %s are held", quota.By, quota.Per, showWith(name, quota.Limits[name]), showHeld(name, after)))
			}
		}
	}
	return warnings
}

// scopes are the scopes of quotas.
type scopes []v1alpha1.Scope

// bind reports whether a quota may apply to a holder.
func (s scopes) bind(holder string) bool {
	return slices.Contains(s, scopeOf(holder))
}

// scopes returns those of the quotas of all policies.
func (ps Policies) scopes() (all scopes) {
	for _, p := range ps {
		if p.Quota != nil && !slices.Contains(all, p.Quota.Per) {
			all = append(all, p.Quota.Per)
		}
	}
	slices.Sort(all)
	return all
}

// countHoldings recomputes the reservations of each holder that a quota may apply to.
func (inv *Inventory) countHoldings() {
	txn := inv.store.Txn(true)
	_, err := txn.DeleteAll(tableHolding, indexID)
	check(err)
	sums := newChange(inv.quotas)
	last := ""
	for _, r := range rows[Reservation](txn, tableReservation, indexID) { // those of one instance follow each other
		if r.Instance != last {
			sums.addInstance(r.Holders, 1)
		}
		last = r.Instance
		sums.add(r, 1)
	}
	for holder, sum := range sums.holders {
		check(txn.Insert(tableHolding, &holding{Holder: holder, Resources: sum}))
	}
	txn.Commit()
	inv.refresh()
}

// holding is a holder's reservations on all clusters together, for holders with a quota.
type holding struct {
	Holder    string
	Resources Resources
}
