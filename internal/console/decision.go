package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// decision is a placement as a picture: a funnel that begins with all clusters, loses some for each reason, and ends
// with those that were chosen, by their scores.
type decision struct {
	*v1alpha1.Decision
	Steps   []step
	Fit     int32
	Chosen  []chosen
	Outcome string
	// End is the outline of the last part, from those that fit to those that were chosen.
	End string
}

// step is a part of the funnel: the clusters that are left after one reason.
type step struct {
	Reason string
	// Lost are rejected for it; Left of all are left.
	Lost, Left int32
	Examples   []v1alpha1.RejectionExample
	// More clusters were rejected than there are examples.
	More int32
	// Shape is the outline of the part, and Gone that of what is lost in it, as points of a polygon in a box that is
	// 1000 wide and 40 high.
	Shape, Gone string
}

// chosen is a cluster that was chosen, or would have been next.
type chosen struct {
	*v1alpha1.Placement
	Cluster string
	Score   int32
	Next    bool
}

// decisionOf returns nil if there is no decision.
func decisionOf(d *v1alpha1.Decision) *decision {
	if d == nil {
		return nil
	}
	shown := &decision{Decision: d, Fit: d.Considered}
	rejections := slices.Clone(d.Rejections)
	// The largest part goes first, as in a sieve.
	slices.SortStableFunc(rejections, func(a, b v1alpha1.Rejection) int { return int(b.Count - a.Count) })
	for _, r := range rejections {
		before := shown.Fit
		shown.Fit = max(0, before-r.Count)
		shown.Steps = append(shown.Steps, step{
			Reason: r.Reason, Lost: r.Count, Left: shown.Fit, Examples: r.Examples, More: r.Count - int32(len(r.Examples)),
			Shape: outline(0, 0, before, shown.Fit, d.Considered), Gone: outline(shown.Fit, before, before, before, d.Considered),
		})
	}
	for i := range d.Placements {
		p := &d.Placements[i]
		shown.Chosen = append(shown.Chosen, chosen{Placement: p, Cluster: p.Cluster, Score: p.Score})
	}
	if next := d.RunnerUp; next != nil {
		shown.Chosen = append(shown.Chosen, chosen{Cluster: next.Cluster, Score: next.Score, Next: true})
	}
	shown.End = outline(0, 0, shown.Fit, int32(len(d.Placements)), d.Considered)
	switch n := len(d.Placements); {
	case n > 0 && d.Considered > 0:
		shown.Outcome = fmt.Sprintf("%s of %s chosen", grouped(int64(n)), counted(int(d.Considered), "cluster"))
	case n > 0:
		shown.Outcome = counted(n, "cluster") + " chosen"
	default:
		shown.Outcome = "No cluster chosen"
	}
	return shown
}

// outline returns a polygon from two edges at the top and two at the bottom, which are counts of all clusters.
func outline(bottomLeft, topLeft, topRight, bottomRight, all int32) string {
	x := func(n int32) string {
		if all <= 0 {
			return "0"
		}
		if n > 0 {
			return fmt.Sprintf("%.1f", max(3, 1000*float64(n)/float64(all))) // one of many is still seen
		}
		return "0"
	}
	return strings.Join([]string{x(topLeft) + ",0", x(topRight) + ",0", x(bottomRight) + ",40", x(bottomLeft) + ",40"}, " ")
}
