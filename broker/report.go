package broker

import (
	"errors"
	"net/http"

	"github.com/sluice-dev/sluice/internal/usage"
)

// getUsage answers GET /usage?month=YYYY-MM&by=…&per=…, which is not of OSB: what the platform's own instances had, also
// those that are gone, and what it cost. Several dimensions are separated by commas.
func (s *server) getUsage(c *call) (*reply, error) {
	q, err := usage.ParseQuery(c.query, usage.ForConsumers, s.Clock.Now())
	if err != nil {
		return nil, badRequest("%s.", err)
	}
	q.Platform, q.Names = c.platform.Name, s.names
	if q.By == nil {
		q.By = []usage.Dimension{usage.ByPlan}
	}
	report, err := s.reports.Make(c.Context(), c.platform.Name, q)
	if errors.Is(err, usage.ErrTooMany) {
		return nil, badRequest("The answer has %s.", err)
	}
	if err != nil {
		return nil, err
	}
	return &reply{status: http.StatusOK, body: report}, nil
}

// names returns the names of an offering and a plan, or their ids if the catalog does not have them any more.
func (s *server) names(serviceID, planID string) (service, plan string) {
	if service, plan = s.Catalog.Names(serviceID, planID); plan == "" {
		return serviceID, planID
	}
	return service, plan
}
