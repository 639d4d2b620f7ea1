package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// waiter is a request that waits.
type waiter struct {
	Request
	// asks are the filters of the request as a new placement, apart from where other instances are.
	asks asks
	// in has the amounts that it asks for on a cluster; nil if it is wide.
	in wants
	// cohort that it belongs to; nil if it is settled.
	cohort *cohort
	// counted is true if the numbers of its neighbours are counted, and none of them is its own reservation.
	counted bool
}

// waiters are the requests that wait.
type waiters struct {
	all map[string]*waiter // by ID
	// wants are the amounts that requests without replicas ask for on a cluster, and parts those that others ask
	// for with one replica; wide are the other requests, which may be helped by any more that a cluster has left.
	wants, parts wants
	wide         map[string]*waiter
	// cohorts are the requests that only a cluster can help that takes them as new placements; settled
	// are the others.
	cohorts map[string]*cohort
	settled map[string]*waiter
	// shaped are the requests whose largest pods are known, by these.
	shaped map[string]*shaped
	// causes are the requests that something else than a cluster may help, by what that is: see
	// waiter.causes.
	causes map[string]map[string]bool
}

func newWaiters() waiters {
	return waiters{
		all: map[string]*waiter{}, wants: wants{}, parts: wants{}, wide: map[string]*waiter{},
		cohorts: map[string]*cohort{}, settled: map[string]*waiter{}, shaped: map[string]*shaped{}, causes: map[string]map[string]bool{},
	}
}

// add adds a request, or replaces the one with its ID; see waiter.counted.
func (ws *waiters) add(r Request, counted bool) {
	ws.remove(r.ID)
	w := &waiter{Request: r, counted: counted}
	ws.all[r.ID] = w
	for _, cause := range w.causes() {
		if ws.causes[cause] == nil {
			ws.causes[cause] = map[string]bool{}
		}
		ws.causes[cause][r.ID] = true
	}
	if key := w.podsKey(); key != "" {
		if ws.shaped[key] == nil {
			ws.shaped[key] = &shaped{w.LargestPods, map[string]bool{}}
		}
		ws.shaped[key].ids[r.ID] = true
	}
	switch {
	case w.isWide():
		ws.wide[r.ID] = w
	case w.Replicas > 0:
		w.in = ws.parts
	default:
		w.in = ws.wants
	}
	if w.in != nil {
		w.in.add(w.on(1), w)
	}
	if w.isSettled() {
		ws.settled[r.ID] = w
		return
	}
	least, key := r.least()
	if ws.cohorts[key] == nil {
		ws.cohorts[key] = &cohort{least: least, key: key, wants: wants{}, unsized: map[string]*waiter{}}
	}
	w.cohort = ws.cohorts[key]
	w.cohort.add(w)
}

// remove removes the request of an ID, if there is one.
func (ws *waiters) remove(id string) {
	w := ws.all[id]
	if w == nil {
		return
	}
	delete(ws.all, id)
	delete(ws.wide, id)
	delete(ws.settled, id)
	for _, cause := range w.causes() {
		if delete(ws.causes[cause], id); len(ws.causes[cause]) == 0 {
			delete(ws.causes, cause)
		}
	}
	if key := w.podsKey(); key != "" {
		if delete(ws.shaped[key].ids, id); len(ws.shaped[key].ids) == 0 {
			delete(ws.shaped, key)
		}
	}
	w.in.remove(w.on(1), w)
	if w.cohort != nil && w.cohort.remove(w) {
		delete(ws.cohorts, w.cohort.key)
	}
}

// isWide reports whether more than room for what it asks for may help the request: room for a component or for
// less than it asks for, because it holds something there; another latency; victims; or one order less at a broker, whose
// market may have less room than the broker may be asked for.
func (w *waiter) isWide() bool {
	return len(w.Components) > 0 || w.isSettled() || w.MaxLatency != nil || w.Upstream != nil
}

// isSettled reports whether a cluster may help the request that does not take it as a new placement: because it
// is there, or may displace others.
func (w *waiter) isSettled() bool {
	return len(w.Current) > 0 || len(w.ComponentClusters) > 0 || w.Class != ""
}

// shaped are the requests with the same largest pods.
type shaped struct {
	pods []Resources
	ids  map[string]bool
}

// podsKey is the same for requests with the same largest pods; empty if they are not known, or if the
// request is wide anyway.
func (w *waiter) podsKey() string {
	if len(w.LargestPods) == 0 || w.isWide() {
		return ""
	}
	return fmt.Sprint(w.LargestPods) // maps are printed in the order of their keys
}

// causes names what may help the request although it changes no cluster that takes it.
func (w *waiter) causes() (causes []string) {
	for _, a := range w.Affinity {
		switch holder := w.Consumer.holder(a.With); {
		case a.Weight > 0 || holder == "":
		case w.counted:
			causes = append(causes, causeNear(holder, a.By))
		default:
			causes = append(causes, causeHolder+holder)
		}
	}
	for _, q := range w.Quotas {
		if holder := w.Consumer.holder(q.Per); holder != "" {
			causes = append(causes, causeQuota+holder)
		}
	}
	for host := range w.Hosts {
		causes = append(causes, causeHost+host)
	}
	if w.Spread != nil && w.Spread.Each {
		causes = append(causes, causeGroups)
	}
	if w.Peering != nil && w.Peering.Problem != "" {
		causes = append(causes, causePeering)
	}
	return causes
}

// Causes, with the name that follows: instances of a holder come or go, or are in another group; a holder of a quota
// holds less; a host is given back; the groups of clusters change; a cluster that is peered does.
const (
	causeHolder  = "holder "
	causeQuota   = "quota "
	causeHost    = "host "
	causeGroups  = "groups"
	causePeering = "peering"
)

// causeNear is the cause that a holder has instances for the first time on clusters with some value of a label, or none any
// more.
func causeNear(holder, label string) string { return "near " + label + " " + holder }

// asks are the filters of new placements for each component of a request, or for the whole of it. They are
// made when they are needed, and so without those that depend on where other instances are.
type asks struct {
	filters [][]filter
	// columns is the number of resources in the inventory when the filters were made.
	columns int
}

// of makes the filters of a request, unless they are made.
func (a *asks) of(r *Request, s *Snapshot) *asks {
	if a.filters != nil && a.columns == len(s.columns) {
		return a
	}
	a.columns, a.filters = len(s.columns), nil
	alone := *s
	alone.preemptions = nil
	for _, part := range r.Parts() {
		part.Affinity, part.Quotas = nil, nil
		a.filters = append(a.filters, part.filters(&alone, nil))
	}
	return a
}

// accept reports whether a cluster passes the filters of one of the parts.
func (a *asks) accept(at position) bool {
	return slices.ContainsFunc(a.filters, func(filters []filter) bool {
		_, refused := refusal(at, filters, false)
		return !refused
	})
}

// cohort is the requests that ask for the same of a cluster, apart from amounts: a cluster is looked at once
// for all of them.
type cohort struct {
	// least is a request for the least that any of them may ask for, and key what they have in common.
	least Request
	key   string
	asks  asks
	// wants are the amounts that they ask for; unsized are requests that ask for none, or whose amounts are
	// in the key.
	wants   wants
	unsized map[string]*waiter
}

func (c *cohort) add(w *waiter) {
	if sized := w.sized(); len(sized) > 0 {
		c.wants.add(sized, w)
	} else {
		c.unsized[w.ID] = w
	}
}

// remove reports whether the request was the last one.
func (c *cohort) remove(w *waiter) bool {
	delete(c.unsized, w.ID)
	c.wants.remove(w.sized(), w)
	return len(c.wants) == 0 && len(c.unsized) == 0
}

// sized returns the amounts that a cluster must have left for the request, unless they are in the key of
// its cohort.
func (w *waiter) sized() Resources {
	if w.exact() {
		return nil
	}
	amounts := Resources{}
	for name, amount := range w.on(1) {
		if _, storage := v1alpha1.StorageClassOf(name); !storage && amount > 0 {
			amounts[name] = amount
		}
	}
	return amounts
}

// accept reports whether a cluster takes the least that one of them may ask for.
func (c *cohort) accept(s *Snapshot, at position) bool { return c.asks.of(&c.least, s).accept(at) }

// taken adds the requests of the cohort that a cluster may take to those given.
func (c *cohort) taken(s *Snapshot, at position, some []*waiter) []*waiter {
	if !c.accept(s, at) {
		return some
	}
	for _, w := range c.unsized {
		some = append(some, w)
	}
	var fewest []want
	for name := range c.wants {
		if fitting := c.wants.between(name, 0, at.page.column(s.columnOf(name)).free[at.row]); fewest == nil || len(fitting) < len(fewest) {
			fewest = fitting
		}
		if len(fewest) == 0 {
			break
		}
	}
	for _, w := range fewest {
		some = append(some, w.by)
	}
	return some
}

// exact reports whether more than the room on a cluster depends on the amounts of the request.
func (r *Request) exact() bool {
	return r.MaxPrice != nil || len(r.Components) > 0 || slices.ContainsFunc(r.Rules, func(rule Rule) bool {
		return rule.expression != nil && (slices.Contains(rule.expression.asked, "request") || slices.Contains(rule.expression.asked, "request.resources"))
	})
}

// least returns the least that a request of its cohort may ask for, and the cohort's key: everything that the
// filters depend on, except amounts where they matter to nothing but room.
func (r Request) least() (least Request, key string) {
	if !r.exact() {
		amounts := Resources{}
		for name, amount := range r.on(1) {
			amounts[name] = min(amount, 1)
		}
		r.Resources, r.Common = amounts, nil
	}
	if r.Peering != nil || r.MaxLatency != nil {
		return r, r.ID // it depends on the consumer's own cluster, and on the age of measurements
	}
	facts := r.facts()
	var parts []any
	for _, part := range r.Parts() {
		var rules []any
		for i := range part.Rules {
			rules = append(rules, part.Rules[i].meaning(facts))
		}
		selector := ""
		if part.Selector != nil {
			selector = part.Selector.String()
		}
		if len(part.wholeHosts()) == 0 { // others are denied, not refused by clusters
			part.Consumer, part.Hosts = Consumer{}, nil
		}
		// No filter depends on these, or only by a rule's meaning. Whatever is added to requests is in the key.
		part.ID, part.At, part.Selector, part.Rules, part.Images, part.Pods, part.Proven = "", time.Time{}, nil, nil, nil, nil, nil
		part.Affinity, part.Quotas, part.Exposed, part.Workload = nil, nil, nil, nil
		part.Preferences, part.Weights, part.External = nil, v1alpha1.ScoreWeights{}, nil
		parts = append(parts, []any{part, selector, rules})
	}
	text, err := json.Marshal(parts)
	if err != nil {
		panic(fmt.Sprintf("placement: a request is no JSON: %v", err)) // plain values
	}
	return r, string(text)
}

// meaning returns everything that decides which clusters a rule refuses to a request.
func (r *Rule) meaning(f *facts) any {
	if r.appliesTo == v1alpha1.RuleConsumer && r.broken == "" {
		return []any{r.Provider, r.claim.holds(f.proven)}
	}
	if r.claim != nil {
		return []any{r.Provider, r.appliesTo, r.broken, r.claim.ClaimRule}
	}
	if r.workloads != nil {
		return []any{r.Provider, r.appliesTo, f.refusedBy(r).is()}
	}
	if r.expression == nil {
		return []any{r.Provider, r.appliesTo, r.broken}
	}
	return []any{r.Provider, r.appliesTo, r.broken, r.expression.source, r.expression.values(f)}
}

// want is an amount that a request asks for on each cluster.
type want struct {
	amount int64
	by     *waiter
}

func (w want) compare(other want) int {
	return cmp.Or(cmp.Compare(w.amount, other.amount), strings.Compare(w.by.ID, other.by.ID))
}

// wants are the amounts that requests ask for, in order, by resource.
type wants map[corev1.ResourceName][]want

func (ws wants) add(amounts Resources, by *waiter) {
	for name, amount := range amounts {
		one := want{amount, by}
		at, _ := slices.BinarySearchFunc(ws[name], one, want.compare)
		ws[name] = slices.Insert(ws[name], at, one)
	}
}

func (ws wants) remove(amounts Resources, by *waiter) {
	for name, amount := range amounts {
		if at, found := slices.BinarySearchFunc(ws[name], want{amount, by}, want.compare); found {
			ws[name] = slices.Delete(ws[name], at, at+1)
		}
		if len(ws[name]) == 0 {
			delete(ws, name)
		}
	}
}

// between returns the requests for more than one amount and at most another.
func (ws wants) between(name corev1.ResourceName, above, most int64) []want {
	all := ws[name]
	after := func(n int64) int {
		at, _ := slices.BinarySearchFunc(all, n, func(w want, n int64) int { return cmp.Or(cmp.Compare(w.amount, n), -1) })
		return at
	}
	return all[after(above):max(after(above), after(most))]
}
