package replay

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/placement"
)

// Outcome is the result of an order.
type Outcome struct {
	Booked
	// Sold orders have Clusters, and Since, when they were placed. Others have Why, and Reason in a word.
	Sold     bool     `json:"sold"`
	Since    Period   `json:"since,omitempty"`
	Clusters []string `json:"clusters,omitempty"`
	// Prices of one hour, in billionths, by currency.
	Prices map[string]int64 `json:"nanoPerHour,omitempty"`
	Reason string           `json:"reason,omitempty"`
	Why    string           `json:"why,omitempty"`
}

// Simulation is an order book that was played against a fleet.
type Simulation struct {
	// Outcomes in the order in which the orders came.
	Outcomes []Outcome `json:"outcomes"`
	// Ended is when the last order came, left or gave up.
	Ended Period `json:"ended"`
	// Revenue of what was sold, until it left or the simulation ended, in billionths, by currency.
	Revenue map[string]int64 `json:"nanoRevenue,omitempty"`
	// Most is the greatest share of each resource that was reserved.
	Most map[corev1.ResourceName]Peak `json:"most,omitempty"`
}

// Peak is the greatest share of a resource that was reserved, and when.
type Peak struct {
	PerMille int64  `json:"perMille"`
	At       Period `json:"at"`
}

// Play orders a book's orders, one after the other as they come, from a fleet as it was at a time. Whatever cannot be
// placed is tried again after every change that may help it, for as long as wait, and is refused then, or at once if
// waiting is in vain. The fleet does not change otherwise: nothing is displaced, moved or made. The error says that
// an order is of no plan, or not valid for it.
func (f *Fleet) Play(orders []Booked, wait time.Duration, at time.Time) (*Simulation, error) {
	plans, err := f.catalog()
	if err != nil {
		return nil, err
	}
	g := &game{
		Simulation: Simulation{Revenue: map[string]int64{}, Most: map[corev1.ResourceName]Peak{}},
		inventory:  f.inventory(at), waiting: map[string]*play{}, woken: map[string]bool{},
		reserved: placement.Resources{}, all: placement.Resources{},
	}
	g.inventory.OnWake(func(instance string) { g.woken[instance] = true })
	s := g.inventory.Snapshot()
	for c, reserved := range s.Utilisation() {
		for name, held := range reserved {
			g.reserved[name] += held
			g.all[name] += held + max(s.Free(c.Name, name), 0)
		}
	}
	g.look(0)
	for i := range orders {
		p := &play{Outcome: Outcome{Booked: orders[i]}, number: i}
		if p.request, err = orders[i].Request(plans); err != nil {
			return nil, fmt.Errorf("order %s: %w", orders[i].ID, err)
		}
		p.request.At = at
		g.plays = append(g.plays, p)
		heap.Push(&g.agenda, turn{orders[i].At, arrives, p})
	}
	for g.agenda.Len() > 0 {
		g.next(heap.Pop(&g.agenda).(turn), Period(wait))
	}
	g.finish()
	return &g.Simulation, nil
}

// play is an order while the simulation runs.
type play struct {
	Outcome
	number  int
	request placement.Request
	takes   placement.Resources
}

// What happens to an order; of what happens at the same time, in this order.
const (
	leaves = iota
	givesUp
	arrives
)

// turn is something that happens to an order.
type turn struct {
	at   Period
	what int
	play *play
}

// agenda is a heap of turns.
type agenda []turn

func (a agenda) Len() int      { return len(a) }
func (a agenda) Swap(i, k int) { a[i], a[k] = a[k], a[i] }
func (a agenda) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(a[i].at, a[k].at), cmp.Compare(a[i].what, a[k].what), cmp.Compare(a[i].play.number, a[k].play.number)) < 0
}
func (a *agenda) Push(one any) { *a = append(*a, one.(turn)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// game is a simulation that runs.
type game struct {
	Simulation
	inventory *placement.Inventory
	agenda    agenda
	plays     []*play
	waiting   map[string]*play
	woken     map[string]bool
	// reserved is the sum on all clusters, and all what can be reserved there.
	reserved, all placement.Resources
}

func (g *game) next(t turn, wait Period) {
	p := t.play
	switch t.what {
	case arrives:
		g.Ended = t.at
		if !g.try(p, t.at) {
			if wait == 0 || placement.Hopeless(g.governed(p), g.inventory.Snapshot()) {
				g.inventory.Release(p.request.ID)
				break
			}
			g.waiting[p.request.ID] = p
			heap.Push(&g.agenda, turn{t.at + wait, givesUp, p})
		}
	case givesUp:
		if g.waiting[p.request.ID] != nil {
			g.Ended = t.at
			delete(g.waiting, p.request.ID)
			g.inventory.Release(p.request.ID)
		}
	case leaves:
		g.Ended = t.at
		g.reserved.Add(p.takes, -1)
		g.inventory.Release(p.request.ID)
	}
	for {
		var ready []*play
		for id := range g.woken {
			if waits := g.waiting[id]; waits != nil {
				ready = append(ready, waits)
			}
		}
		clear(g.woken)
		if len(ready) == 0 {
			return
		}
		slices.SortFunc(ready, func(a, b *play) int { return cmp.Compare(a.number, b.number) })
		for _, one := range ready {
			if g.try(one, t.at) {
				delete(g.waiting, one.request.ID)
			}
		}
	}
}

func (g *game) governed(p *play) placement.Request {
	return g.inventory.Snapshot().Govern(p.request, p.Consumer)
}

// try places an order, or notes why it cannot be placed.
func (g *game) try(p *play, at Period) bool {
	d, err := g.inventory.Place(g.governed(p))
	if unplaceable, ok := placement.AsUnplaceable(err); ok {
		p.Why, p.Reason = err.Error(), reasonOf(unplaceable)
		return false
	}
	p.Sold, p.Since, p.Why, p.Reason, p.Prices, p.takes = true, at, "", "", map[string]int64{}, placement.Resources{}
	for i := range d.Placements {
		placed := &d.Placements[i]
		p.Clusters = append(p.Clusters, placed.Cluster)
		p.takes.Add(placed.Reserved, 1)
		if placed.Price != nil {
			p.Prices[placed.Price.Currency] += placed.Price.NanoPerHour
		}
	}
	g.reserved.Add(p.takes, 1)
	g.look(at)
	if p.For > 0 {
		heap.Push(&g.agenda, turn{at + p.For, leaves, p})
	}
	return true
}

// look notes what is reserved if it is more than ever before.
func (g *game) look(at Period) {
	for name, all := range g.all {
		if share := int64(float64(g.reserved[name]) * 1000 / float64(max(all, 1))); share > g.Most[name].PerMille {
			g.Most[name] = Peak{share, at}
		}
	}
}

// reasonOf returns the reason why the clusters that came closest do not fit; a quota or a host is the reason Denied.
func reasonOf(why *placement.UnplaceableError) string {
	if why.Denied {
		return "Denied"
	}
	last := placement.Reason("Unplaceable")
	for _, rejection := range why.Decision.Rejections { // in the order of the filters
		if rejection.Reason != placement.ReasonFits {
			last = rejection.Reason
		}
	}
	return string(last)
}

// finish adds up what was sold.
func (g *game) finish() {
	for _, p := range g.plays {
		if p.Sold {
			until := g.Ended
			if p.For > 0 {
				until = min(until, p.Since+p.For)
			}
			for currency, nanoPerHour := range p.Prices {
				g.Revenue[currency] += int64(float64(nanoPerHour) * time.Duration(until-p.Since).Hours())
			}
		}
		g.Outcomes = append(g.Outcomes, p.Outcome)
	}
	slices.SortStableFunc(g.Outcomes, func(a, b Outcome) int { return cmp.Compare(a.At, b.At) })
}
