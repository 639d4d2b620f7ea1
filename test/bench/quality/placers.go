package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// amounts are in the order of a workload's resources: cores in thousandths, memory in MiB, pieces of others.
type amounts []int64

// The first two resources of every workload.
const (
	cpu = iota
	memory
)

// common are the resources of workloads without others.
var common = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// cluster of a fleet; prices in billionths of a euro per core and GiB and hour.
type cluster struct {
	name, provider string
	has, used      amounts
	prices         amounts
}

// request of an instance.
type request struct {
	id     string
	asks   amounts
	arrive int
	leave  int // never, if zero
}

func (c *cluster) free(i int) int64 { return c.has[i] - c.used[i] }

func (c *cluster) fits(r request) bool {
	for i, amount := range r.asks {
		if c.free(i) < amount {
			return false
		}
	}
	return true
}

// take takes what a request asks for, or gives it back.
func (c *cluster) take(r request, sign int64) {
	for i, amount := range r.asks {
		c.used[i] += sign * amount
	}
}

// copied returns the fleet with books of its own.
func copied(fleet []cluster) []cluster {
	fleet = slices.Clone(fleet)
	for i := range fleet {
		fleet[i].used = slices.Clone(fleet[i].used)
	}
	return fleet
}

// placer chooses a cluster for each request, by its number; −1 refuses it. What it chose
// is taken until it is released.
type placer interface {
	place(r request) int
	release(r request)
}

// strategy is a kind of placer.
type strategy struct {
	name    string
	plotted bool
	new     func(w workload) placer
}

func placers() []strategy {
	return slices.Concat(ours(), plain(), []strategy{
		{"worst fit", false, func(w workload) placer {
			return newSimple(w, func(f *simple, r request, a, b int) bool { return f.slack(a, r) > f.slack(b, r) })
		}},
		{"random", true, func(w workload) placer { return &drawing{simple: newSimple(w, nil), random: seeded(7)} }},
		// Karmada divides replicas by dynamic weight: in proportion to how many more fit
		// (ReplicaDivisionPreference Weighted, DynamicWeight AvailableReplicas). One replica is
		// then drawn by that weight.
		{"as Karmada, by available replicas", true, func(w workload) placer {
			return &drawing{simple: newSimple(w, nil), random: seeded(7), weighted: true}
		}},
	})
}

// ours are Sluice's own weightings.
func ours() []strategy {
	sluice := func(name string, plotted bool, weights v1alpha1.ScoreWeights) strategy {
		return strategy{"Sluice, " + name, plotted, func(w workload) placer { return newSluice(w, weights) }}
	}
	return []strategy{
		sluice("fit", true, v1alpha1.ScoreWeights{Fit: 1}),
		sluice("balance", true, v1alpha1.ScoreWeights{Balance: 1}),
		sluice("pack", true, v1alpha1.ScoreWeights{Pack: 1}),
		sluice("price", true, v1alpha1.ScoreWeights{Price: 1}),
		sluice("price and fit", false, v1alpha1.ScoreWeights{Price: 1, Fit: 1}),
	}
}

// plain are the strategies of the literature; the first of equals wins.
func plain() []strategy {
	better := func(name string, plotted bool, better func(f *simple, r request, a, b int) bool) strategy {
		return strategy{name, plotted, func(w workload) placer { return newSimple(w, better) }}
	}
	return []strategy{
		better("first fit", true, func(*simple, request, int, int) bool { return false }),
		better("best fit", true, func(f *simple, r request, a, b int) bool { return f.slack(a, r) < f.slack(b, r) }),
		// Tetris: the greatest dot product of what is asked for and what is free, in shares of the cluster.
		better("dot product", true, func(f *simple, r request, a, b int) bool { return f.alignment(a, r) > f.alignment(b, r) }),
		{"FGD", true, newGradient},
	}
}

// sluicePlacer is Sluice's engine.
type sluicePlacer struct {
	workload
	inventory *placement.Inventory
	number    map[string]int
	weights   v1alpha1.ScoreWeights
}

func newSluice(w workload, weights v1alpha1.ScoreWeights) placer {
	p := &sluicePlacer{w, placement.NewInventory(), map[string]int{}, weights}
	for i, c := range w.fleet {
		p.number[c.name] = i
		one := &placement.Cluster{Name: c.name, Ready: true, AccessVerified: true, Allocatable: w.resourcesOf(c.has)}
		if len(c.prices) > 0 {
			one.Currency, one.Prices = "EUR", map[corev1.ResourceName]int64{}
			for k, price := range c.prices {
				one.Prices[w.resources[k]] = price
			}
		}
		p.inventory.UpsertCluster(one)
	}
	return p
}

// resourcesOf returns amounts in the units of the engine; a resource without any is absent.
func (w workload) resourcesOf(of amounts) placement.Resources {
	resources := placement.Resources{}
	for i, amount := range of {
		if i == memory {
			amount <<= 20
		}
		if amount > 0 {
			resources[w.resources[i]] = amount
		}
	}
	return resources
}

func (p *sluicePlacer) place(r request) int {
	d, err := p.inventory.Place(placement.Request{ID: r.id, Weights: p.weights, Resources: p.resourcesOf(r.asks)})
	if err != nil {
		p.inventory.Release(r.id) // it does not wait
		return -1
	}
	return p.number[d.Placements[0].Cluster]
}

func (p *sluicePlacer) release(r request) { p.inventory.Release(r.id) }

// simple strategies compare clusters two by two; the first of equals wins.
type simple struct {
	fleet  []cluster
	better func(f *simple, r request, a, b int) bool
	on     map[string]int
}

func newSimple(w workload, better func(*simple, request, int, int) bool) *simple {
	return &simple{copied(w.fleet), better, map[string]int{}}
}

// slack returns the sum of the shares of a cluster that would stay free.
func (f *simple) slack(i int, r request) (sum float64) {
	c := &f.fleet[i]
	for k := range c.has {
		if c.has[k] > 0 {
			sum += share(c.free(k)-r.asks[k], c.has[k])
		}
	}
	return sum
}

// alignment returns the dot product of what is asked for and what is free, in shares of the cluster.
func (f *simple) alignment(i int, r request) (sum float64) {
	c := &f.fleet[i]
	for k := range c.has {
		if c.has[k] > 0 {
			sum += share(r.asks[k], c.has[k]) * share(c.free(k), c.has[k])
		}
	}
	return sum
}

func (f *simple) place(r request) int {
	chosen := -1
	for i := range f.fleet {
		if f.fleet[i].fits(r) && (chosen < 0 || f.better(f, r, i, chosen)) {
			chosen = i
		}
	}
	return f.take(r, chosen)
}

func (f *simple) take(r request, i int) int {
	if i >= 0 {
		f.fleet[i].take(r, 1)
		f.on[r.id] = i
	}
	return i
}

func (f *simple) release(r request) {
	if i, ok := f.on[r.id]; ok {
		f.fleet[i].take(r, -1)
		delete(f.on, r.id)
	}
}

// drawing chooses at random, of all that fit or by how often the request fits.
type drawing struct {
	*simple
	random   *rand.Rand
	weighted bool
}

func (d *drawing) place(r request) int {
	weights, sum := make([]int64, len(d.fleet)), int64(0)
	for i := range d.fleet {
		c := &d.fleet[i]
		if !c.fits(r) {
			continue
		}
		weights[i] = 1
		if d.weighted {
			weights[i] = math.MaxInt32
			for k, amount := range r.asks {
				if amount > 0 {
					weights[i] = min(weights[i], c.free(k)/amount)
				}
			}
		}
		sum += weights[i]
	}
	if sum == 0 {
		return -1
	}
	at := d.random.Int64N(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return d.take(r, i)
		}
	}
	panic(fmt.Sprint("drew beyond ", sum))
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) } // a workload, not a secret
