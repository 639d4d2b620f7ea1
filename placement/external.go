package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"
	corev1 "k8s.io/api/core/v1"
)

// ExternalScorer asks a scorer outside Sluice, for instance a learned one, what it
// thinks of the best clusters. Its absence never keeps a request waiting for longer
// than its timeout: after five failures in a row it is not asked for half a minute
// (circuit breaker), and its weight counts for nothing.
type ExternalScorer struct {
	url     string
	client  *http.Client
	breaker *gobreaker.CircuitBreaker[map[string]int32]
}

const (
	// scorerCandidates is the number of clusters that a scorer is asked about: the best by
	// the other scorers.
	scorerCandidates = 256
	// scorerAnswer bounds its answer, in bytes.
	scorerAnswer = 1 << 20
	// DefaultScorerTimeout bounds one question.
	DefaultScorerTimeout = 200 * time.Millisecond
)

// NewExternalScorer returns the scorer at a URL, which POSTs a ScorerQuestion as JSON
// and takes a ScorerAnswer; zero means DefaultScorerTimeout. Redirects are not
// followed: the operator names the scorer.
func NewExternalScorer(url string, timeout time.Duration) *ExternalScorer {
	if timeout == 0 {
		timeout = DefaultScorerTimeout
	}
	return &ExternalScorer{
		url: url,
		client: &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		breaker: gobreaker.NewCircuitBreaker[map[string]int32](gobreaker.Settings{Timeout: 30 * time.Second}),
	}
}

// ScorerQuestion is what an external scorer is asked.
type ScorerQuestion struct {
	Request  ScorerRequest   `json:"request"`
	Clusters []ScorerCluster `json:"clusters"`
}

// ScorerRequest is a request as an external scorer sees it.
type ScorerRequest struct {
	ID        string                        `json:"id"`
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

// ScorerAnswer gives scores from 0 to 100 by the name of the cluster.
type ScorerAnswer struct {
	Scores map[string]int32 `json:"scores"`
}

// Score asks for the scores of the best clusters that fit a request. It blocks for at
// most the scorer's timeout. The map is nil where there is an error.
func (x *ExternalScorer) Score(ctx context.Context, r Request, s *Snapshot) (map[string]int32, error) {
	scores, err := x.breaker.Execute(func() (map[string]int32, error) { return x.ask(ctx, question(r, s)) })
	if err != nil {
		return nil, fmt.Errorf("ask the external scorer: %w", err)
	}
	return scores, nil
}

func (x *ExternalScorer) ask(ctx context.Context, q ScorerQuestion) (map[string]int32, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := x.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end or not, it is of no use any more
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	var answer ScorerAnswer
	if err := json.NewDecoder(io.LimitReader(response.Body, scorerAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if answer.Scores == nil {
		return nil, fmt.Errorf("its answer has no scores")
	}
	return answer.Scores, nil
}

// question is what is asked about a request: the current clusters that suit, then the
// best of the others.
func question(r Request, s *Snapshot) ScorerQuestion {
	e := evaluate(r, s)
	q := ScorerQuestion{Request: ScorerRequest{
		ID: r.ID, Plan: r.Consumer.Plan, Platform: r.Consumer.Platform, Space: r.Consumer.Space,
		Clusters: r.clusters(), Replicas: r.Replicas, Resources: r.Resources,
	}}
	for _, c := range append(e.current, e.best(scorerCandidates, nil)...) {
		cluster := c.cluster()
		one := ScorerCluster{
			Name: cluster.Name, Provider: cluster.Provider, Region: cluster.Region, Labels: cluster.Labels,
			Free: map[corev1.ResourceName]int64{}, Scores: e.scorer.components(c.spot),
		}
		for name := range r.Resources {
			one.Free[name] = c.page.column(s.columnOf(name)).free[c.row] + c.held[name]
		}
		if price := e.scorer.tariff.priceOf(c.spot); price != nil {
			one.PricePerHour, one.Currency = price.NanoPerHour, price.Currency
		}
		q.Clusters = append(q.Clusters, one)
	}
	return q
}
