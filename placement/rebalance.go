package placement

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// Proposal is a move that would improve the placement of an instance.
type Proposal struct {
	// Instance is the name of the ServiceInstance.
	Instance string
	// From are the clusters that it would leave, To those that would replace them.
	From, To []string
	// Score is the mean score of its current clusters, and Gain what the move adds.
	Score, Gain int32
	// Price of an hour before and after; nil if one of the clusters has no price.
	Price, NewPrice *Price
}

// Proposals returns at most the given number of moves that gain at least the given number of
// points, the greatest gain first. The function of reports which instances to consider. The
// moves can be made one after the other: each is computed with those before it made. The reader
// must be live, not a cache.
func Proposals(ctx context.Context, reader client.Reader, namespace string, plans *catalog.Snapshot, now time.Time,
	leastGain int32, most int, of func(*v1alpha1.ServiceInstance) bool,
) ([]Proposal, error) {
	inventory := NewInventory()
	if err := recoverInventory(ctx, reader, namespace, inventory, now); err != nil {
		return nil, err
	}
	requests, err := settledRequests(ctx, reader, namespace, plans, inventory, now, of)
	if err != nil {
		return nil, err
	}
	type candidate struct {
		request Request
		gain    int32
	}
	var candidates []candidate
	snapshot := inventory.Snapshot()
	for _, r := range requests {
		if p, _ := propose(r, snapshot); p != nil && p.Gain >= leastGain {
			candidates = append(candidates, candidate{r, p.Gain})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.gain, a.gain), strings.Compare(a.request.ID, b.request.ID))
	})
	var proposals []Proposal
	for _, c := range candidates {
		if len(proposals) == most {
			break
		}
		p, held := propose(c.request, inventory.Snapshot())
		if p == nil || p.Gain < leastGain {
			continue // a proposal before it has taken its place
		}
		inventory.Reserve(Holding{Instance: p.Instance, Consumer: c.request.Consumer, Held: held})
		proposals = append(proposals, *p)
	}
	return proposals, nil
}

// settledRequests returns the requests of the delivered instances without an operation under
// way.
func settledRequests(ctx context.Context, reader client.Reader, namespace string, plans *catalog.Snapshot, inventory *Inventory,
	now time.Time, of func(*v1alpha1.ServiceInstance) bool,
) (requests []Request, err error) {
	list := &v1alpha1.ServiceInstanceList{}
	policies := inventory.Snapshot().Policies()
	err = eachPage(ctx, reader, namespace, list, func() {
		for i := range list.Items {
			instance := &list.Items[i]
			if !instance.IsSettled() || !of(instance) {
				continue
			}
			state := &instance.Status.Delivered.State
			plan, err := plans.Plan(instance.Spec.ServiceID, state.PlanID)
			if err != nil {
				continue // its offering is no longer served
			}
			request, err := NewRequest(instance.Name, plan, state.Raw())
			if err != nil || request.Made != nil || request.Peering != nil || len(request.Components) > 0 {
				// No proposals for clusters, which do not move; for instances with components,
				// which move only together; and for peered instances, whose pods would restart.
				continue
			}
			request = policies.Govern(request, ConsumerOf(instance))
			request.Current, request.Free, request.At = instance.Status.Delivered.Decision.Clusters(), true, now
			requests = append(requests, request)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list service instances: %w", err)
	}
	return requests, nil
}

// propose computes where an instance would be placed today, and what it would hold there. It
// returns nil if the instance would stay, or if its clusters no longer fit, which is not a
// question of gain.
func propose(r Request, s *Snapshot) (*Proposal, map[string]Resources) {
	e := evaluate(r, s)
	chosen, short := e.choose()
	if short != nil || len(e.lost) > 0 {
		return nil, nil
	}
	p := &Proposal{Instance: r.ID}
	now := map[string]bool{}
	held := map[string]Resources{}
	var after []candidate
	for _, c := range chosen {
		name := c.cluster().Name
		now[name] = true
		held[name] = r.Resources.times(max(c.replicas, 1))
		after = append(after, c)
		if !slices.Contains(r.Current, name) {
			p.To = append(p.To, name)
		}
	}
	for _, name := range r.Current {
		if !now[name] {
			p.From = append(p.From, name)
		}
	}
	if len(p.From) == 0 || len(p.To) == 0 {
		return nil, nil
	}
	p.Score = meanScore(e.current)
	p.Gain = meanScore(after) - p.Score
	p.Price, p.NewPrice = e.price(e.current), e.price(after)
	return p, held
}

func meanScore(candidates []candidate) int32 {
	var sum int32
	for _, c := range candidates {
		sum += c.score
	}
	return sum / int32(max(len(candidates), 1)) //nolint:gosec // at most mostClusters
}

// price returns the price of all candidates together; nil if one has none, or another currency.
func (e *evaluation) price(candidates []candidate) *Price {
	var sum *Price
	for _, c := range candidates {
		one := e.scorer.tariff.priceOf(c.spot).times(max(c.replicas, 1))
		switch {
		case one == nil, sum != nil && sum.Currency != one.Currency:
			return nil
		case sum == nil:
			sum = &Price{Currency: one.Currency}
		}
		sum.NanoPerHour += one.NanoPerHour
	}
	return sum
}
