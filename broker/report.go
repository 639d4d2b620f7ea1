package broker

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/internal/usage"
)

// mostSums bounds an answer to GET /usage.
const mostSums = 20_000

// usageBody is the answer to GET /usage.
type usageBody struct {
	From  time.Time    `json:"from"`
	To    time.Time    `json:"to"`
	Usage []*usage.Sum `json:"usage"`
}

// getUsage answers GET /usage?month=YYYY-MM&by=…&per=…, which is not of OSB: what the platform's own instances had, also
// those that are gone, and what it cost. Several dimensions are separated by commas. Reports are made one after the
// other, because each reads all instances.
func (s *server) getUsage(c *call) (*reply, error) {
	window, err := usage.ParseMonth(c.query.Get("month"), s.Clock.Now())
	if err != nil {
		return nil, badRequest("%s.", err)
	}
	q := usage.Query{Window: window, By: []usage.Dimension{usage.ByPlan}, Per: usage.PerMonth, Most: mostSums, Names: s.names, Platform: c.platform.Name}
	if text := c.query.Get("by"); text != "" {
		q.By = nil
		for _, part := range strings.Split(text, ",") {
			if !slices.Contains(usage.ForConsumers, usage.Dimension(part)) {
				return nil, badRequest("by: %q is none of %s.", part, joined(usage.ForConsumers))
			}
			q.By = append(q.By, usage.Dimension(part))
		}
	}
	if text := c.query.Get("per"); text != "" {
		if q.Per = usage.Step(text); !slices.Contains(usage.Steps, q.Per) {
			return nil, badRequest("per: %q is none of %s.", text, joined(usage.Steps))
		}
	}
	select {
	case s.reports <- struct{}{}:
		defer func() { <-s.reports }()
	case <-c.Context().Done():
		return nil, c.Context().Err()
	}
	read, err := usage.Read(c.Context(), s.Client, s.Namespace, q)
	if err != nil {
		return nil, fmt.Errorf("read the usage of %s: %w", c.platform.Name, err)
	}
	sums, err := usage.Sums(read, q)
	if err != nil {
		return nil, badRequest("The answer has %s.", err)
	}
	return &reply{status: http.StatusOK, body: usageBody{window.From, window.To, sums}}, nil
}

// names returns the names of an offering and a plan, or their ids if the catalog does not have them any more.
func (s *server) names(serviceID, planID string) (service, plan string) {
	if service, plan = s.Catalog.Names(serviceID, planID); plan == "" {
		return serviceID, planID
	}
	return service, plan
}

func joined[T ~string](all []T) string {
	text := make([]string, len(all))
	for i := range all {
		text[i] = string(all[i])
	}
	return strings.Join(text, ", ")
}
