package placement

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Verdict is what a placement says of one cluster.
type Verdict struct {
	Cluster string
	// Chosen clusters have no Reason.
	Chosen  bool
	Reason  Reason
	Message string
	// Score, its components and the price are those of clusters that fit.
	Score  int32
	Scores Scores
	Price  *Price
}

// Explain is Place with a verdict on every cluster: the chosen ones first, then
// those that fit, both best first, then the refused ones by name. It is computed
// anew rather than carried by the decision: Place is a pure function.
func Explain(r Request, s *Snapshot) []Verdict {
	e := evaluate(r, s)
	chosen := e.choose()
	if len(chosen) < r.clusters() {
		chosen = nil
	}
	fitting := append(slices.Clone(e.current), e.best(s.Len())...)
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

// WriteTable writes verdicts as a table for people.
func WriteTable(w io.Writer, verdicts []Verdict) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tVERDICT\tSCORE\tBALANCE\tPACK\tPRICE\tLATENCY\tPREFERENCE\tCOST\tWHY")
	for _, v := range verdicts {
		verdict, cost := string(v.Reason), "-"
		if v.Chosen {
			verdict = "Chosen"
		}
		if v.Price != nil {
			cost = v.Price.String()
		}
		scores := "-\t-\t-\t-\t-\t-"
		if v.Chosen || v.Reason == ReasonOutranked || v.Reason == ReasonFits {
			scores = fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d",
				v.Score, v.Scores.Balance, v.Scores.Pack, v.Scores.Price, v.Scores.Latency, v.Scores.Preference)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", v.Cluster, verdict, scores, cost, v.Message)
	}
	return table.Flush() // Fprintf to a tabwriter reports its errors here
}
