package console

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// peeringRow is a peering in a list.
type peeringRow struct {
	Consumer, Provider string
	State              state
	// Latency is the round trip between the gateways, as Liqo measures it; zero if that is not known.
	Latency time.Duration
	Modules []string
	// Kept peerings stay when no instance needs them.
	Kept bool
	// IdentityExpires is when the consumer's identity at the provider ends; nil if it does not.
	IdentityExpires *metav1.Time
}

// Took is the latency as a text; empty if it is not known.
func (r *peeringRow) Took() string {
	if r.Latency <= 0 {
		return ""
	}
	unit := time.Microsecond // three digits
	for ; r.Latency >= 1000*unit; unit *= 10 {
	}
	return r.Latency.Round(unit).String()
}

func (s *server) peeringsPage(c *call) (*page, error) {
	var peerings v1alpha1.PeeringList
	var clusters v1alpha1.MemberClusterList
	if err := errors.Join(s.list(c.Context(), &peerings), s.list(c.Context(), &clusters)); err != nil {
		return nil, err
	}
	rows := peeringRows(peerings.Items, clusters.Items, s.Clock.Now())
	data := struct {
		All   int
		Graph *graph
		Rows  []*peeringRow
		Pages pager
	}{All: len(rows), Graph: draw(rows)}
	data.Rows, data.Pages = paged(c, rows)
	return &page{Title: "Peerings", template: "peerings", Live: Root + "live", Data: data}, nil
}

// peeringRows returns the peerings, those that are not ready first.
func peeringRows(peerings []v1alpha1.Peering, clusters []v1alpha1.MemberCluster, now time.Time) []*peeringRow {
	type pair struct{ from, to string }
	latencies := map[pair]time.Duration{}
	for i := range clusters {
		for _, l := range clusters[i].Status.Latencies {
			if now.Sub(l.MeasuredAt.Time) <= v1alpha1.ObservedLatencyTTL {
				latencies[pair{l.From, clusters[i].Name}] = l.Median.Duration
			}
		}
	}
	rows := make([]*peeringRow, 0, len(peerings))
	for i := range peerings {
		p := &peerings[i]
		row := &peeringRow{
			Consumer: p.Spec.Consumer, Provider: p.Spec.Provider, State: stateOf(p.Status.Conditions, v1alpha1.CreatedOf(p)), Kept: p.Spec.Kept,
			IdentityExpires: p.Status.IdentityExpiresAt,
		}
		// Either gateway measures the same connection.
		row.Latency = cmp.Or(latencies[pair{row.Consumer, row.Provider}], latencies[pair{row.Provider, row.Consumer}])
		for _, module := range p.Spec.Modules {
			row.Modules = append(row.Modules, string(module))
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b *peeringRow) int {
		return cmp.Or(rankOf(a.State)-rankOf(b.State), strings.Compare(a.Consumer, b.Consumer), strings.Compare(a.Provider, b.Provider))
	})
	return rows
}

// graph is a drawing of peerings: consumers on the left, providers on the right, and clusters that are both, such as hubs,
// between them.
type graph struct {
	Width, Height int
	Nodes         []*node
	Edges         []edge
}

// node is a cluster. Peerings begin on its right side, and end on its left.
type node struct {
	Name, Kind          string
	X, Y, Width, Height int
	// Middle of its name.
	TextX, TextY int
	in, out      []*peeringRow
}

// edge is a peering.
type edge struct {
	Path, Kind, Title string
	// Label of the latency, and its end.
	Label          string
	LabelX, LabelY int
}

// Measures of the drawing, in its own units.
const (
	mostNodes  = 60
	nodeWidth  = 190
	columnsGap = 160
	portGap    = 20
	nodeGap    = 16
	// longestName is the number of bytes of a name that fits into a node.
	longestName = 24
)

// draw draws peerings; nil for none, and for more clusters than can be told apart.
func draw(rows []*peeringRow) *graph {
	nodes := map[string]*node{}
	at := func(name string) *node {
		if nodes[name] == nil {
			nodes[name] = &node{Name: name, Width: nodeWidth}
		}
		return nodes[name]
	}
	for _, row := range rows {
		at(row.Consumer).out = append(at(row.Consumer).out, row)
		at(row.Provider).in = append(at(row.Provider).in, row)
	}
	if len(nodes) == 0 || len(nodes) > mostNodes {
		return nil
	}
	var columns [3][]*node
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n, column := nodes[name], 1
		switch {
		case len(n.in) == 0:
			column = 0
		case len(n.out) == 0:
			column = 2
		}
		columns[column] = append(columns[column], n)
	}
	g := &graph{Width: 1}
	for i, column := range columns {
		// A provider is at the height of its consumers, which are drawn before it.
		slices.SortStableFunc(column, func(a, b *node) int { return cmp.Compare(a.pull(nodes), b.pull(nodes)) })
		y := 1
		for _, n := range column {
			n.X, n.Y = 1+i*(nodeWidth+columnsGap), y
			n.Height = portGap * (max(len(n.in), len(n.out)) + 1)
			n.TextX, n.TextY = n.X+nodeWidth/2, n.Y+n.Height/2
			y += n.Height + nodeGap
			g.Nodes = append(g.Nodes, n)
			g.Height, g.Width = max(g.Height, y), max(g.Width, n.X+nodeWidth+1)
		}
	}
	for _, n := range g.Nodes {
		slices.SortStableFunc(n.in, func(a, b *peeringRow) int { return nodes[a.Consumer].Y - nodes[b.Consumer].Y })
		slices.SortStableFunc(n.out, func(a, b *peeringRow) int { return nodes[a.Provider].Y - nodes[b.Provider].Y })
	}
	for _, row := range rows {
		g.Edges = append(g.Edges, row.between(nodes[row.Consumer], nodes[row.Provider]))
	}
	return g
}

// Short is the name, or as much of it as fits.
func (n *node) Short() string { return v1alpha1.Cut(n.Name, longestName) }

// pull returns the mean height of a node's consumers.
func (n *node) pull(nodes map[string]*node) int {
	sum := 0
	for _, row := range n.in {
		sum += nodes[row.Consumer].Y
	}
	return sum / max(len(n.in), 1)
}

// between draws a peering as a curve.
func (r *peeringRow) between(consumer, provider *node) edge {
	x1, y1 := consumer.X+nodeWidth, consumer.Y+portGap*(1+slices.Index(consumer.out, r))
	x2, y2 := provider.X, provider.Y+portGap*(1+slices.Index(provider.in, r))
	bend := columnsGap / 2
	if x2 < x1 { // of two clusters that are both
		bend = columnsGap
	}
	e := edge{
		Path: fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2), Kind: r.State.Kind,
		Title: r.Consumer + " uses " + r.Provider + ": " + r.State.Word,
	}
	e.Label, e.LabelX, e.LabelY = r.Took(), x2-6, y2-4
	return e
}
