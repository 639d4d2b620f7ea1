package external

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/sluice-dev/sluice/placement"
)

// Scorer asks a scorer outside Sluice, for instance a learned one, to score the best
// clusters. A scorer that is down never delays a request by more than its timeout: after five
// failures in a row it is not asked for half a minute (circuit breaker), and its weight counts
// for nothing.
type Scorer struct {
	service *service
	breaker *gobreaker.CircuitBreaker[map[string]int32]
}

// DefaultTimeout is the default timeout of one question to a scorer.
const DefaultTimeout = 200 * time.Millisecond

// NewScorer returns a scorer that receives a ScorerQuestion as JSON and replies with a
// ScorerAnswer. The error names the wrong option.
func NewScorer(o Options) (*Scorer, error) {
	service, err := newService("scorer", o, DefaultTimeout)
	if err != nil {
		return nil, err
	}
	return &Scorer{service, gobreaker.NewCircuitBreaker[map[string]int32](gobreaker.Settings{
		Timeout: 30 * time.Second, ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= 5 },
	})}, nil
}

// Score asks for the scores of the best clusters that fit a request. It blocks for at most the
// scorer's timeout. The map is nil if there is an error.
func (x *Scorer) Score(ctx context.Context, r placement.Request, s *placement.Snapshot) (map[string]int32, error) {
	scores, err := x.breaker.Execute(func() (map[string]int32, error) { return x.ask(ctx, placement.Question(r, s)) })
	if err != nil {
		return nil, fmt.Errorf("ask the external scorer: %w", err)
	}
	return scores, nil
}

func (x *Scorer) ask(ctx context.Context, q placement.ScorerQuestion) (map[string]int32, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	data, err := x.service.ask(ctx, http.MethodPost, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var answer placement.ScorerAnswer
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	if answer.Scores == nil {
		return nil, fmt.Errorf("its answer has no scores")
	}
	return answer.Scores, nil
}
