package placement

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Verdict is the result of a placement for one cluster.
type Verdict struct {
	Cluster string `json:"cluster"`
	// Role is "hub" if the verdict is on a cluster as a hub; empty otherwise.
	Role string `json:"role,omitempty"`
	// Component of the verdict, if the request has components.
	Component string `json:"component,omitempty"`
	// Chosen clusters have no Reason.
	Chosen  bool   `json:"chosen,omitempty"`
	Reason  Reason `json:"reason,omitempty"`
	Message string `json:"message"`
	// Replicas on the cluster, if the request has replicas.
	Replicas int64 `json:"replicas,omitempty"`
	// Score, its parts and the price are set only for clusters that fit.
	Score  int32  `json:"score"`
	Scores Scores `json:"scores"`
	// Weights of the scores; scores of weight zero are not part of Score.
	Weights Scores `json:"weights"`
	Price   *Price `json:"price,omitempty"`
}

// roleHub is the role of a cluster through which others are reached.
const roleHub = "hub"

// Explain is Place with a verdict on every cluster: the chosen ones first, then those that fit,
// both best first, then the rejected ones by name. Verdicts on hubs, if one is needed, come
// before them. It computes the placement anew, because Place is a pure function and its
// decision does not carry the verdicts.
func Explain(r Request, s *Snapshot) []Verdict {
	verdicts := explain(r, s)
	if r.Peering != nil {
		verdicts = append(slices.Clone(r.Peering.hubs), verdicts...)
	}
	return verdicts
}

func explain(r Request, s *Snapshot) []Verdict {
	if len(r.Components) > 0 {
		return explainTogether(r, s)
	}
	e := evaluate(r, s)
	defer e.release()
	chosen, short := e.choose()
	verdicts := e.verdicts(chosen)
	if short == nil {
		return verdicts
	}
	return displacing(verdicts, r, s)
}

// verdicts returns the verdicts of an evaluation, with these clusters chosen.
func (e *evaluation) verdicts(chosen []candidate) []Verdict {
	r, s := e.request, e.snapshot
	fitting := append(slices.Clone(e.current), e.fitting()...)
	for i := range fitting {
		fitting[i].rank = int64(fitting[i].score)
	}
	slices.SortFunc(fitting, better)
	isChosen := func(c candidate) bool { return among(chosen, c.position) }
	first := slices.DeleteFunc(slices.Clone(fitting), func(c candidate) bool { return !isChosen(c) })
	fitting = append(first, slices.DeleteFunc(fitting, isChosen)...)

	verdicts, weights := make([]Verdict, 0, s.Len()), e.scorer.weighs()
	for _, c := range fitting {
		v := Verdict{
			Cluster: c.cluster().Name, Score: c.score,
			Scores: e.scorer.components(c.position), Weights: weights, Price: e.scorer.tariff.priceOf(c.position),
		}
		switch v.Chosen = among(chosen, c.position); {
		case !v.Chosen:
			v.Reason, v.Message = e.passedOver(c.position, chosen)
		case e.isOn(c.position):
			v.Message = "the instance is there"
		default:
			v.Message = r.Upstream.failures(c.cluster()).addTo("fits best")
		}
		i := slices.IndexFunc(chosen, func(other candidate) bool { return other.position.same(c.position) })
		if i >= 0 {
			v.Message += e.shareOf(chosen[i], chosen)
			v.Price = e.price(chosen[i])
		}
		if i >= 0 && r.Replicas > 0 {
			v.Replicas = chosen[i].replicas
			v.Message += fmt.Sprintf(", %d of %d replicas", v.Replicas, r.Replicas)
		}
		verdicts = append(verdicts, v)
	}
	return append(verdicts, e.refusals()...)
}

// refusals returns the verdicts on clusters that do not fit, by name.
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

// columns returns the scorers that count, with their weights in their titles: "BALANCE×1".
func columns(verdicts []Verdict) (shown []scorerKind) {
	for _, kind := range scorers {
		var weight int32
		for i := range verdicts {
			weight = max(weight, *kind.part(&verdicts[i].Weights))
		}
		if weight > 0 {
			kind.title = fmt.Sprintf("%s×%d", kind.title, weight)
			shown = append(shown, kind)
		}
	}
	return shown
}

// WriteTable writes verdicts as a readable table, with the scores that count.
func WriteTable(w io.Writer, verdicts []Verdict) error {
	shown := columns(verdicts)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	components := slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Component != "" })
	if components {
		fmt.Fprint(table, "COMPONENT\t")
	}
	hubs := slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Role != "" })
	if hubs {
		fmt.Fprint(table, "ROLE\t")
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
		if hubs {
			fmt.Fprintf(table, "%s\t", cmp.Or(v.Role, "cluster"))
		}
		fits := v.Chosen || v.Reason == ReasonOutranked || v.Reason == ReasonFits
		fmt.Fprintf(table, "%s\t%s\t%s", v.Cluster, verdict, points(v.Score, fits))
		for _, column := range shown {
			fmt.Fprint(table, "\t", points(*column.part(&v.Scores), fits && v.Role == ""))
		}
		fmt.Fprintf(table, "\t%s\t%s\n", cost, v.Message)
	}
	return table.Flush() // Fprintf to a tabwriter reports its errors here
}

// points formats a score, which only clusters that fit have.
func points(score int32, fits bool) string {
	if !fits {
		return "-"
	}
	return strconv.Itoa(int(score))
}
