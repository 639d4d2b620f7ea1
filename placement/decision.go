package placement

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Decision is the result of a placement. Every cluster of the inventory is either in Placements
// or counted in Rejections.
type Decision struct {
	// Placements, best first; none if the request cannot be placed.
	Placements []Placement
	// Considered is the number of clusters in the inventory.
	Considered int
	// Rejections, one for each reason, in the order of the filters.
	Rejections []Rejection
	// RunnerUp is the cluster that would have been chosen next; nil if there is none.
	RunnerUp *RunnerUp
	// Preemption that would make room, if it was looked for; nil if there is none.
	Preemption *v1alpha1.Preemption
	// Warnings name the quotas of which the consumer now has as much as they warn at; Inventory.Place adds them.
	Warnings []string
}

// RunnerUp is the cluster that would have been chosen next: of those that fit and were not chosen, the best by score,
// less its price if a budget chose.
type RunnerUp struct {
	Cluster string
	Score   int32
}

// Placement is one chosen cluster.
type Placement struct {
	Cluster string
	// Replicas on the cluster; zero if the request has none.
	Replicas int32
	// Components on the cluster; none if the request has none.
	Components []string
	// Linked are the clusters to whose components those here are linked.
	Linked   []v1alpha1.LinkedCluster
	Reserved Resources
	// LargestPods that the instance is meant to run there.
	LargestPods []Resources
	// Score from 0 to 100; Explain returns its parts.
	Score int32
	// Price of the reservation; nil if the cluster has no price list.
	Price *Price
	// PublicPorts of the components there that have one that speaks TCP.
	PublicPorts Ports
	// Evidence is the provider of the cluster, and the proofs about it, when it was chosen.
	Evidence v1alpha1.ClusterEvidence
	// Workloads are the rules for pods there; all hold.
	Workloads []v1alpha1.WorkloadRules
}

// Rejection is one reason why clusters were not chosen.
type Rejection struct {
	Reason Reason
	Count  int
	// Examples are the alphabetically first clusters rejected for it, at most maxExamples.
	Examples []Example
}

// Example is one rejected cluster.
type Example struct {
	Cluster string
	// Message with the numbers.
	Message string
}

// maxExamples limits the examples of each reason; Explain returns all clusters.
const maxExamples = 3

// UnplaceableError means that a request cannot be placed with the current inventory.
type UnplaceableError struct {
	// Decision without placements, with the rejections.
	Decision Decision
	// Asked is the number of clusters requested, Found that of clusters that fit.
	Asked, Found int
	// Lost are the clusters that the instance is on and has to stay on, but that no longer fit,
	// with the reason and the numbers.
	Lost []Example
	// Hopeless means that no cluster can ever take it, whatever is released; computed only on
	// demand.
	Hopeless bool
	// Why is a further reason: groups, replicas, a quota or a host. Empty if the rejections are the
	// whole reason.
	Why string
	// Told are texts of others, by the reason for which clusters were rejected, that consumers may read.
	Told map[Reason][]string
	// short is the part of Why that consumers may read; empty if that is nothing.
	short string
	// Denied means that the consumer exceeds its quota, or asks for a host that is taken; no change of
	// a cluster helps.
	Denied bool
}

// Error is one sentence for operators, with clusters and numbers; ForConsumer returns one without these.
func (e *UnplaceableError) Error() string {
	var b strings.Builder
	switch {
	case e.Denied:
		return e.Why
	case len(e.Lost) > 0:
		return fmt.Sprintf("the instance stays on its clusters, and %s cannot take the change: %s", e.Lost[0].Cluster, e.Lost[0].Message)
	case e.Decision.Considered == 0:
		return "there are no member clusters"
	case e.Why != "":
		b.WriteString(e.Why)
	case e.Asked == 1 && e.Decision.Considered == 1:
		b.WriteString("the only cluster does not fit")
	case e.Asked == 1:
		fmt.Fprintf(&b, "none of %d clusters fits", e.Decision.Considered)
	default:
		fmt.Fprintf(&b, "%d of the %d clusters asked for found among %d", e.Found, e.Asked, e.Decision.Considered)
	}
	separator := ": "
	for _, r := range e.Decision.Rejections {
		if r.Reason == ReasonFits {
			continue
		}
		fmt.Fprintf(&b, "%s%s on %d", separator, r.Reason, r.Count)
		if len(r.Examples) > 0 {
			fmt.Fprintf(&b, " (%s: %s)", r.Examples[0].Cluster, r.Examples[0].Message)
		}
		separator = ", "
	}
	return b.String()
}

// API converts the decision for the status of an instance at a generation.
func (d Decision) API(generation int64) *v1alpha1.Decision {
	out := &v1alpha1.Decision{Generation: generation, Considered: int32(d.Considered), Preemption: d.Preemption} // a count of clusters
	for _, p := range d.Placements {
		placed := v1alpha1.Placement{
			Cluster: p.Cluster, Replicas: p.Replicas, Components: p.Components, Linked: p.Linked, Reserved: p.Reserved.List(), Score: p.Score,
			PublicPorts: p.PublicPorts, Workloads: p.Workloads,
		}
		for _, pod := range p.LargestPods {
			placed.LargestPods = append(placed.LargestPods, pod.List())
		}
		if p.Price != nil {
			placed.PricePerHour, placed.Currency = p.Price.quantity(), p.Price.Currency
		}
		out.Placements = append(out.Placements, placed)
	}
	if d.RunnerUp != nil {
		out.RunnerUp = &v1alpha1.RunnerUp{Cluster: d.RunnerUp.Cluster, Score: d.RunnerUp.Score}
	}
	for _, r := range d.Rejections {
		rejection := v1alpha1.Rejection{Reason: string(r.Reason), Count: int32(r.Count)} // a count of clusters
		for _, example := range r.Examples {
			rejection.Examples = append(rejection.Examples, v1alpha1.RejectionExample(example))
		}
		out.Rejections = append(out.Rejections, rejection)
	}
	return out
}

// decision returns the decision with these clusters chosen.
func (e *evaluation) decision(chosen []candidate) Decision {
	d := Decision{Considered: e.snapshot.Len()}
	for _, c := range chosen {
		d.Placements = append(d.Placements, e.placement(c))
	}
	var t tally
	for _, l := range e.lost {
		t.count(l.reason, 1)
		t.example(l.reason, Example{l.name, l.why()})
	}
	for f, refused := range e.refused {
		for i, rows := range refused {
			t.page(e.filters[f].reason, e.pages[i], rows, e.filters[f].message)
		}
	}
	for _, c := range e.current {
		if !among(chosen, c.position) {
			reason, message := e.passedOver(c.position, chosen)
			t.count(reason, 1)
			t.example(reason, Example{c.cluster().Name, message})
		}
	}
	for i, rows := range e.fits {
		for _, c := range chosen {
			if c.page == e.pages[i] {
				rows.remove(c.row)
			}
		}
		t.page(passedOverReason(chosen), e.pages[i], rows, func(p *page, row int) string {
			_, message := e.passedOver(position{page: p, row: row}, chosen)
			return message
		})
	}
	d.Rejections = t.rejections
	if len(chosen) > 0 {
		d.RunnerUp = e.runnerUp(chosen)
	}
	return d
}

// runnerUp returns the cluster that would have been chosen next.
func (e *evaluation) runnerUp(chosen []candidate) *RunnerUp {
	var best *candidate
	for _, ranked := range e.ranked {
		for i := range ranked {
			c := &ranked[i]
			if (best == nil || better(*c, *best) < 0) && !among(chosen, c.position) {
				best = c
			}
		}
	}
	if best == nil {
		return nil
	}
	return &RunnerUp{best.cluster().Name, best.score}
}

// placement returns the placement on a chosen cluster.
func (e *evaluation) placement(c candidate) Placement {
	return Placement{
		Cluster: c.cluster().Name, Replicas: int32(c.replicas), // at most as asked for
		Reserved: e.request.on(c.replicas), Score: c.score, Price: e.price(c),
		LargestPods: e.request.LargestPods, Evidence: c.cluster().evidence(), Workloads: e.request.rulesOn(c.cluster()),
	}
}

// why returns why a current cluster no longer fits.
func (l lost) why() string {
	if l.page == nil {
		return "the instance is there, and it is not in the inventory"
	}
	return l.message(l.page, l.row)
}

func among(chosen []candidate, at position) bool {
	return slices.ContainsFunc(chosen, func(c candidate) bool { return c.same(at) })
}

// tally counts rejections by reason.
type tally struct{ rejections []Rejection }

func (t *tally) of(reason Reason) *Rejection {
	i := slices.IndexFunc(t.rejections, func(r Rejection) bool { return r.Reason == reason })
	if i < 0 {
		i = len(t.rejections)
		t.rejections = append(t.rejections, Rejection{Reason: reason})
	}
	return &t.rejections[i]
}

func (t *tally) count(reason Reason, n int) { t.of(reason).Count += n }

func (t *tally) example(reason Reason, example Example) {
	r := t.of(reason)
	r.Examples = keepBest(r.Examples, example, maxExamples, func(a, b Example) int { return strings.Compare(a.Cluster, b.Cluster) })
}

// page counts the rows of a page. Pages are ordered by name, so the first rows become the
// examples.
func (t *tally) page(reason Reason, p *page, rows set, message func(*page, int) string) {
	if rows == (set{}) {
		return
	}
	t.count(reason, rows.len())
	taken := 0
	for row := range rows.rows() {
		if r := t.of(reason); taken == maxExamples || len(r.Examples) == maxExamples && r.Examples[maxExamples-1].Cluster < p.clusters[row].Name {
			return
		}
		t.example(reason, Example{p.clusters[row].Name, message(p, row)})
		taken++
	}
}

// Uses reports whether the decision places something on a cluster.
func (d Decision) Uses(cluster string) bool {
	return slices.ContainsFunc(d.Placements, func(p Placement) bool { return p.Cluster == cluster })
}

// uses reports whether the decision places a component on a cluster.
func (d Decision) uses(cluster, component string) bool {
	return slices.ContainsFunc(d.Placements, func(p Placement) bool {
		return p.Cluster == cluster && slices.Contains(p.Components, component)
	})
}

// AsUnplaceable is errors.As for *UnplaceableError.
func AsUnplaceable(err error) (*UnplaceableError, bool) {
	unplaceable := (*UnplaceableError)(nil)
	return unplaceable, errors.As(err, &unplaceable)
}

// ForConsumer returns the message for the consumer: the reasons, which show what part of the
// order does not fit, without clusters or numbers.
func (e *UnplaceableError) ForConsumer() string {
	switch {
	case e.Denied:
		return e.Why
	case len(e.Lost) > 0:
		return "the instance stays on its clusters, and they cannot take the change: " + strings.Join(e.reasons(), ", ")
	case e.Decision.Considered == 0:
		return "nothing is on offer at the moment"
	case e.short != "":
		return "nothing on offer fits at the moment: " + e.short
	default:
		return "nothing on offer fits at the moment: " + strings.Join(e.reasons(), ", ")
	}
}

// reasons returns why clusters were not chosen, or why those that the instance is on no longer
// fit.
func (e *UnplaceableError) reasons() []string {
	var all []string
	for _, l := range e.Lost {
		reason, _, _ := strings.Cut(l.Message, " ")
		all = append(all, reason)
	}
	if len(all) == 0 {
		for _, r := range e.Decision.Rejections {
			if r.Reason == ReasonFits {
				continue
			}
			reason := string(r.Reason)
			if told := e.Told[r.Reason]; len(told) > 0 {
				reason += " (" + strings.Join(told, "; ") + ")"
			}
			all = append(all, reason)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
