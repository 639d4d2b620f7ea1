package placement

import (
	"math"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// scorerKind is a scorer of every request.
type scorerKind struct {
	// title of the column of its scores.
	title string
	// weight of the scorer; nil for preferences, which have their own weights.
	weight func(*v1alpha1.ScoreWeights) *int32
	// part is its score among all.
	part func(*Scores) *int32
	// of returns the score of a cluster that fits, from 0 to 100.
	of func(*scorer, position) int32
}

// weighted is a scorer that has a weight in a request.
type weighted struct {
	weight int64
	of     func(*scorer, position) int32
}

// scorers are all scorers, in the order of columns.
var scorers = []scorerKind{
	{"FIT", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Fit }, func(s *Scores) *int32 { return &s.Fit }, (*scorer).fitting},
	{"BALANCE", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Balance }, func(s *Scores) *int32 { return &s.Balance }, (*scorer).balance},
	{"PACK", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Pack }, func(s *Scores) *int32 { return &s.Pack }, (*scorer).pack},
	{"PRICE", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Price }, func(s *Scores) *int32 { return &s.Price }, (*scorer).price},
	{"LATENCY", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Latency }, func(s *Scores) *int32 { return &s.Latency }, (*scorer).nearness},
	{"PREFERENCE", nil, func(s *Scores) *int32 { return &s.Preference }, (*scorer).preference},
	{"LOCALITY", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Locality }, func(s *Scores) *int32 { return &s.Locality }, (*scorer).locality},
	{"FRESHNESS", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Freshness }, func(s *Scores) *int32 { return &s.Freshness }, (*scorer).freshness},
	{"DIVERSITY", func(w *v1alpha1.ScoreWeights) *int32 { return &w.Diversity }, func(s *Scores) *int32 { return &s.Diversity }, (*scorer).diversity},
	{"EXTERNAL", func(w *v1alpha1.ScoreWeights) *int32 { return &w.External }, func(s *Scores) *int32 { return &s.External }, (*scorer).outside},
}

// weightOf returns the weight of a scorer in the request.
func (sc *scorer) weightOf(kind *scorerKind) int64 {
	if kind.weight == nil {
		return sc.preferred
	}
	return int64(*kind.weight(&sc.weights))
}

// weighs returns the weight of each scorer.
func (sc *scorer) weighs() (weights Scores) {
	for i := range scorers {
		*scorers[i].part(&weights) = int32(min(sc.weightOf(&scorers[i]), math.MaxInt32))
	}
	return weights
}

// components returns the results of all scorers, including those without a weight.
func (sc *scorer) components(at position) (scores Scores) {
	for i := range scorers {
		*scorers[i].part(&scores) = scorers[i].of(sc, at)
	}
	return scores
}

// addWeights adds up the weights of plan and policies.
func addWeights(a, b v1alpha1.ScoreWeights) v1alpha1.ScoreWeights {
	for i := range scorers {
		if weight := scorers[i].weight; weight != nil {
			*weight(&a) += *weight(&b)
		}
	}
	return a
}
