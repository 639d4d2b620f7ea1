package placement

import (
	"fmt"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Market lists a plan of a broker that is a Sluice, as it was when the market was read.
type Market struct {
	// Known reports whether the broker knows how many orders fit.
	Known bool
	// Orders that fitted beside one another; AtLeast says that more might.
	Orders  int64
	AtLeast bool
	// Clusters of the broker that would have taken one.
	Clusters int32
	// Reason why none fitted, in the broker's words.
	Reason string
	// Ordered is the number of instances that this hub had reserved at the broker.
	Ordered int64
	// Price of an instance; without a currency if the broker gives none.
	Price Price
}

// marketsOf returns what a broker says of its plans at a time. It is too old once the broker's market could not be read
// for a while (v1alpha1.UpstreamBroker.MarketAge): then it is only the price that counts.
func marketsOf(mc *v1alpha1.MemberCluster, now time.Time) map[string]Market {
	if mc.Status.Broker == nil || mc.Status.Broker.Sluice == nil || mc.Spec.Broker == nil {
		return nil
	}
	sluice := mc.Status.Broker.Sluice
	fresh := sluice.MarketReadAt != nil && now.Sub(sluice.MarketReadAt.Time) <= mc.Spec.Broker.MarketAge()
	markets := map[string]Market{}
	for i := range sluice.Plans {
		said := sluice.Plans[i].Market
		if said == nil {
			continue
		}
		m := Market{}
		if said.Price != nil {
			m.Price = *PriceOf(said.Price)
		}
		if fresh && said.Orders != nil {
			m.Known, m.Orders, m.AtLeast, m.Clusters, m.Reason, m.Ordered = true, *said.Orders, said.AtLeast, said.Clusters, said.Reason, said.Ordered
		}
		markets[sluice.Plans[i].Plan] = m
	}
	return markets
}

// left returns how many more orders fit at a broker where so many instances are reserved. bounded is false if it is not
// known, or if more may fit.
func (m Market) left(reserved int64) (orders int64, bounded bool) {
	if !m.Known || m.AtLeast && m.Orders > 0 {
		return 0, false
	}
	return max(m.Orders-m.since(reserved), 0), true
}

// since returns how many orders were made there since the market was read.
func (m Market) since(reserved int64) int64 { return max(reserved-m.Ordered, 0) }

// market returns what is known of the candidate at a broker, and how many instances are reserved there.
func (u *Upstream) market(p *page, row, column int) (market Market, reserved int64) {
	broker := p.clusters[row]
	c := u.Candidates[broker.Name]
	return broker.Markets[c.Name()], broker.Unreserved(v1alpha1.ResourceInstances) - p.column(column).free[row]
}

// noRoom rejects brokers whose market says that no order fits. It was read a while ago, so orders since then count.
func noRoom(u *Upstream, s *Snapshot) filter {
	column := s.columnOf(v1alpha1.ResourceInstances)
	return filter{reason: ReasonNoRoom, entry: true, passing: true,
		rejects: func(p *page, among set) set {
			return p.brokers.and(among).where(func(row int) bool {
				market, reserved := u.market(p, row, column)
				left, bounded := market.left(reserved)
				return bounded && left < 1
			})
		},
		message: func(p *page, row int) string {
			market, reserved := u.market(p, row, column)
			switch {
			case market.Orders > 0:
				return fmt.Sprintf("its market had room for %d more on %d clusters, and since then %d were ordered there", market.Orders, market.Clusters, market.since(reserved))
			case market.Reason != "":
				return "its market has no room for one more: " + market.Reason
			}
			return "its market has no room for one more"
		},
		told: func(p *page, row int) string {
			market, _ := u.market(p, row, column)
			return market.Reason // which the broker tells all its platforms
		},
	}
}
