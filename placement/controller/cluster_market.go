package controller

import (
	"context"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// market of a broker that is a Sluice, as it was read last: the plans that offerings order there.
type market struct {
	plans   map[string]*v1alpha1.MarketPlan // by SERVICE/PLAN
	readAt  time.Time
	problem error
}

// readMarket reads the market of a broker that is a Sluice. A market that cannot be read is no problem of the broker:
// it is then not known how many orders fit there, as of a broker that is no Sluice.
func (w *clusterWatch) readMarket(ctx context.Context, r *clusterReconciler, now time.Time) {
	ids, names := map[string]bool{}, map[string]string{}
	chains := chainsOf(w.catalog)
	for i := range w.catalog.Services {
		s := &w.catalog.Services[i]
		for k := range s.Plans {
			name := s.Name + "/" + s.Plans[k].Name
			if _, isSluice := chains[name]; isSluice && w.ordered[name] {
				ids[s.Plans[k].ID], names[s.Plans[k].ID] = true, name
			}
		}
	}
	if len(ids) == 0 {
		w.market = market{}
		return
	}
	// What is reserved now is not more than the broker knows of when it answers, unless an order is on its way.
	reserved := int64(len(r.Inventory.Snapshot().Reservations(w.cluster)))
	plans, err := w.clients.broker.MarketPlans(ctx, ids)
	w.market.problem = err
	if err != nil {
		return
	}
	w.market.plans, w.market.readAt = map[string]*v1alpha1.MarketPlan{}, now
	for id, plan := range plans {
		plan.Ordered = reserved
		w.market.plans[names[id]] = plan
	}
}

// report writes what was read into the status.
func (m *market) report(s *v1alpha1.UpstreamSluice) {
	if s == nil || m.plans == nil && m.problem == nil {
		return
	}
	for i := range s.Plans {
		s.Plans[i].Market = m.plans[s.Plans[i].Plan]
	}
	if !m.readAt.IsZero() {
		at := metav1.NewTime(m.readAt.Truncate(time.Second))
		s.MarketReadAt = &at
	}
	refused := (*osbclient.Error)(nil)
	switch {
	case errors.As(m.problem, &refused) && refused.Status == http.StatusNotFound:
		s.MarketProblem = "its market is not at the URL of the broker"
	case m.problem != nil:
		s.MarketProblem = v1alpha1.Cut(m.problem.Error(), 500)
	}
}
