package main

import "math"

// gradient descends the fragmentation gradient (Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing
// Workloads with Fragmentation Gradient Descent, USENIX ATC 2023): it chooses the cluster on which the
// expected amount of the scarce resource that an ordinary order cannot use grows least. As in the paper it
// knows the distribution of the orders in advance; the first of equals wins.
type gradient struct {
	*simple
	scarce int
	orders []request
}

// mostOrders is how many orders stand for the distribution.
const mostOrders = 100

func newGradient(w workload) placer {
	g := &gradient{simple: newSimple(w, nil), scarce: w.scarcest()}
	every := max(len(w.requests)/mostOrders, 1)
	for i := 0; i < len(w.requests); i += every {
		g.orders = append(g.orders, w.requests[i])
	}
	return g
}

func (g *gradient) place(r request) int {
	chosen, least := -1, int64(math.MaxInt64)
	for i := range g.fleet {
		c := &g.fleet[i]
		if !c.fits(r) {
			continue
		}
		before := g.fragments(c)
		c.take(r, 1)
		more := g.fragments(c) - before
		c.take(r, -1)
		if more < least {
			chosen, least = i, more
		}
	}
	return g.take(r, chosen)
}

// fragments is the sum, over the orders, of what each cannot use of the scarce resource: all of it if it
// does not fit or does not ask for it.
func (g *gradient) fragments(c *cluster) (sum int64) {
	free := c.free(g.scarce)
	for _, order := range g.orders {
		if order.asks[g.scarce] == 0 || !c.fits(order) {
			sum += free
		}
	}
	return sum
}
