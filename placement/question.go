package placement

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// QuestionVersion is the version of questions to external scorers; openapi.json of placement/external describes it.
const QuestionVersion = 1

// ScorerQuestion is the question to an external scorer, about a request or one of its components.
type ScorerQuestion struct {
	Version  int             `json:"version"`
	Request  ScorerRequest   `json:"request"`
	Clusters []ScorerCluster `json:"clusters"`
}

// ScorerRequest is a request as an external scorer sees it.
type ScorerRequest struct {
	ID        string                        `json:"id"`
	Component string                        `json:"component,omitempty"`
	Plan      string                        `json:"plan"`
	Platform  string                        `json:"platform"`
	Space     string                        `json:"space,omitempty"`
	Clusters  int                           `json:"clusters"`
	Replicas  int                           `json:"replicas,omitempty"`
	Resources map[corev1.ResourceName]int64 `json:"resources"` // thousandths of a core, bytes, pieces
}

// ScorerCluster is a cluster that fits.
type ScorerCluster struct {
	Name     string                        `json:"name"`
	Provider string                        `json:"provider,omitempty"`
	Region   string                        `json:"region,omitempty"`
	Labels   map[string]string             `json:"labels,omitempty"`
	Free     map[corev1.ResourceName]int64 `json:"free"`
	Scores   Scores                        `json:"scores"`
	// PricePerHour in billionths of Currency's unit.
	PricePerHour int64  `json:"pricePerHour,omitempty"`
	Currency     string `json:"currency,omitempty"`
}

// ScorerAnswer contains scores from 0 to 100 by the name of the cluster.
type ScorerAnswer struct {
	Scores map[string]int32 `json:"scores"`
}

// scorerCandidates is the number of clusters that a scorer is asked about: the best by the
// other scorers.
const scorerCandidates = 256

// Question returns the question about a request without components (see Request.Parts): the current clusters that fit, then the best
// of the others.
func Question(r Request, s *Snapshot) ScorerQuestion {
	e := evaluate(r, s)
	defer e.release()
	q := ScorerQuestion{Version: QuestionVersion, Request: ScorerRequest{
		ID: r.ID, Component: r.component, Plan: r.Consumer.Plan, Platform: r.Consumer.Platform, Space: r.Consumer.Space,
		Clusters: r.width(s), Replicas: r.Replicas, Resources: r.on(1),
	}}
	for _, c := range append(e.current, e.best(scorerCandidates, nil)...) {
		cluster := c.cluster()
		one := ScorerCluster{
			Name: cluster.Name, Provider: cluster.Provider, Region: cluster.Region, Labels: cluster.Labels,
			Free: map[corev1.ResourceName]int64{}, Scores: e.scorer.components(c.position),
		}
		for name := range q.Request.Resources {
			one.Free[name] = c.page.column(s.columnOf(name)).free[c.row] + c.held[name]
		}
		if price := e.scorer.tariff.priceOf(c.position); price != nil {
			one.PricePerHour, one.Currency = price.NanoPerHour, price.Currency
		}
		q.Clusters = append(q.Clusters, one)
	}
	return q
}

// Scored returns the request with the scores of an external scorer for each of its Parts; nil means that it did not
// answer.
func (r Request) Scored(parts []map[string]int32) Request {
	if len(r.Components) == 0 {
		r.External = parts[0]
		return r
	}
	r.Components = slices.Clone(r.Components)
	for i := range r.Components {
		r.Components[i].External = parts[i]
	}
	return r
}
