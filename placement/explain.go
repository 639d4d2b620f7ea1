package placement

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Verdict is what a placement says of one cluster.
type Verdict struct {
	Cluster string `json:"cluster"`
	// Component that it is about, where the request has some.
	Component string `json:"component,omitempty"`
	// Chosen clusters have no Reason.
	Chosen  bool   `json:"chosen,omitempty"`
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message"`
	// Replicas on the cluster, where the request divides some.
	Replicas int64 `json:"replicas,omitempty"`
	// Score, its components and the price are those of clusters that fit.
	Score  int32  `json:"score"`
	Scores Scores `json:"scores"`
	Price  *Price `json:"price,omitempty"`
}

// Explain is Place with a verdict on every cluster: the chosen ones first, then
// those that fit, both best first, then the refused ones by name. It is computed
// anew rather than carried by the decision: Place is a pure function.
func Explain(r Request, s *Snapshot) []Verdict {
	if len(r.Components) > 0 {
		return explainTogether(r, s)
	}
	e := evaluate(r, s)
	chosen, short := e.choose()
	verdicts := e.verdicts(chosen)
	if short == nil {
		return verdicts
	}
	if p := Preempt(r, s); p != nil {
		i := slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Cluster == p.Cluster })
		verdicts[i].Reason, verdicts[i].Message = ReasonDisplaces, p.Message+"; "+describePreemption(p)
	}
	return verdicts
}

// verdicts are those of an evaluation, with these clusters chosen.
func (e *evaluation) verdicts(chosen []candidate) []Verdict {
	r, s := e.request, e.snapshot
	for i := range e.current {
		e.current[i].rank = int64(e.current[i].score)
	}
	fitting := append(slices.Clone(e.current), e.best(s.Len(), nil)...)
	slices.SortStableFunc(fitting, func(a, b candidate) int {
		switch first, second := among(chosen, a.spot), among(chosen, b.spot); {
		case first && !second:
			return -1
		case second && !first:
			return 1
		default:
			return better(a, b)
		}
	})

	verdicts := make([]Verdict, 0, s.Len())
	for _, c := range fitting {
		v := Verdict{
			Cluster: c.cluster().Name, Score: c.score,
			Scores: e.scorer.components(c.spot), Price: e.scorer.tariff.priceOf(c.spot),
		}
		switch v.Chosen = among(chosen, c.spot); {
		case !v.Chosen:
			v.Reason, v.Message = e.passedOver(c.spot, chosen)
		case slices.Contains(r.Current, v.Cluster):
			v.Message = "the instance is there"
		default:
			v.Message = "fits best"
		}
		if i := slices.IndexFunc(chosen, func(other candidate) bool { return other.spot.same(c.spot) }); i >= 0 && r.Replicas > 0 {
			v.Replicas = chosen[i].replicas
			v.Message += fmt.Sprintf(", %d of %d replicas", v.Replicas, r.Replicas)
			v.Price = v.Price.times(chosen[i].replicas)
		}
		verdicts = append(verdicts, v)
	}
	return append(verdicts, e.refusals()...)
}

// refusals are the verdicts on clusters that do not fit, by name.
func (e *evaluation) refusals() []Verdict {
	var verdicts []Verdict
	for _, l := range e.lost {
		verdicts = append(verdicts, Verdict{Cluster: l.name, Reason: l.reason, Message: l.why()})
	}
	for f, refused := range e.refused {
		for i, rows := range refused {
			for row := range rows.rows() {
				verdicts = append(verdicts, Verdict{
					Cluster: e.pages[i].clusters[row].Name,
					Reason:  e.filters[f].reason, Message: e.filters[f].message(e.pages[i], row),
				})
			}
		}
	}
	slices.SortFunc(verdicts, func(a, b Verdict) int { return strings.Compare(a.Cluster, b.Cluster) })
	return verdicts
}

// scorerColumns are the columns of a table: those that every table has, and those that
// only tables have in which they say something.
var scorerColumns = []struct {
	title  string
	always bool
	of     func(Scores) int32
}{
	{"BALANCE", true, func(s Scores) int32 { return s.Balance }},
	{"PACK", true, func(s Scores) int32 { return s.Pack }},
	{"PRICE", true, func(s Scores) int32 { return s.Price }},
	{"LATENCY", true, func(s Scores) int32 { return s.Latency }},
	{"PREFERENCE", true, func(s Scores) int32 { return s.Preference }},
	{"LOCALITY", false, func(s Scores) int32 { return s.Locality }},
	{"FRESHNESS", false, func(s Scores) int32 { return s.Freshness }},
	{"DIVERSITY", false, func(s Scores) int32 { return s.Diversity }},
	{"EXTERNAL", false, func(s Scores) int32 { return s.External }},
}

// WriteTable writes verdicts as a table for people.
func WriteTable(w io.Writer, verdicts []Verdict) error {
	shown := scorerColumns[:0:0]
	for _, column := range scorerColumns {
		if column.always || slices.ContainsFunc(verdicts, func(v Verdict) bool { return column.of(v.Scores) != 0 }) {
			shown = append(shown, column)
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	components := slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Component != "" })
	if components {
		fmt.Fprint(table, "COMPONENT\t")
	}
	fmt.Fprint(table, "CLUSTER\tVERDICT\tSCORE")
	for _, column := range shown {
		fmt.Fprint(table, "\t", column.title)
	}
	fmt.Fprintln(table, "\tCOST\tWHY")
	for _, v := range verdicts {
		verdict, cost := string(v.Reason), "-"
		if v.Chosen {
			verdict = "Chosen"
		}
		if v.Price != nil {
			cost = v.Price.String()
		}
		if components {
			fmt.Fprintf(table, "%s\t", v.Component)
		}
		fits := v.Chosen || v.Reason == ReasonOutranked || v.Reason == ReasonFits
		fmt.Fprintf(table, "%s\t%s\t%s", v.Cluster, verdict, points(v.Score, fits))
		for _, column := range shown {
			fmt.Fprint(table, "\t", points(column.of(v.Scores), fits))
		}
		fmt.Fprintf(table, "\t%s\t%s\n", cost, v.Message)
	}
	return table.Flush() // Fprintf to a tabwriter reports its errors here
}

// points renders a score, which only clusters that fit have.
func points(score int32, fits bool) string {
	if !fits {
		return "-"
	}
	return strconv.Itoa(int(score))
}
