package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// cluster of a fleet; cores in thousandths, memory in MiB, prices in billionths of a
// euro per core and GiB and hour.
type cluster struct {
	name, provider        string
	cpu, memory           int64
	usedCPU, usedMemory   int64
	cpuPrice, memoryPrice int64
}

// request of an instance.
type request struct {
	id          string
	cpu, memory int64
	arrive      int
	leave       int // never, if zero
}

func (c *cluster) fits(r request) bool {
	return c.cpu-c.usedCPU >= r.cpu && c.memory-c.usedMemory >= r.memory
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
	new     func(fleet []cluster) placer
}

func placers() []strategy {
	sluice := func(name string, plotted bool, w v1alpha1.ScoreWeights) strategy {
		return strategy{name, plotted, func(fleet []cluster) placer { return newSluice(fleet, w) }}
	}
	plain := func(name string, plotted bool, better func(f *simple, r request, a, b int) bool) strategy {
		return strategy{name, plotted, func(fleet []cluster) placer { return newSimple(fleet, better) }}
	}
	return []strategy{
		sluice("Sluice, balance", true, v1alpha1.ScoreWeights{Balance: 1}),
		sluice("Sluice, pack", true, v1alpha1.ScoreWeights{Pack: 1}),
		sluice("Sluice, price", true, v1alpha1.ScoreWeights{Price: 1}),
		sluice("Sluice, price and balance", false, v1alpha1.ScoreWeights{Price: 1, Balance: 1}),
		plain("first fit", true, func(*simple, request, int, int) bool { return false }),
		plain("best fit", true, func(f *simple, r request, a, b int) bool { return f.slack(a, r) < f.slack(b, r) }),
		plain("worst fit", false, func(f *simple, r request, a, b int) bool { return f.slack(a, r) > f.slack(b, r) }),
		{"random", true, func(fleet []cluster) placer { return &drawing{simple: newSimple(fleet, nil), random: seeded(7)} }},
		// Karmada divides replicas by dynamic weight: in proportion to how many more fit
		// (ReplicaDivisionPreference Weighted, DynamicWeight AvailableReplicas). One replica is
		// then drawn by that weight.
		{"as Karmada, by available replicas", true, func(fleet []cluster) placer {
			return &drawing{simple: newSimple(fleet, nil), random: seeded(7), weighted: true}
		}},
	}
}

// sluicePlacer is Sluice's engine.
type sluicePlacer struct {
	inventory *placement.Inventory
	number    map[string]int
	weights   v1alpha1.ScoreWeights
}

func newSluice(fleet []cluster, weights v1alpha1.ScoreWeights) placer {
	p := &sluicePlacer{placement.NewInventory(), map[string]int{}, weights}
	for i, c := range fleet {
		p.number[c.name] = i
		p.inventory.UpsertCluster(&placement.Cluster{
			Name: c.name, Ready: true, AccessVerified: true, Currency: "EUR",
			Allocatable: placement.Resources{corev1.ResourceCPU: c.cpu, corev1.ResourceMemory: c.memory << 20},
			Prices:      map[corev1.ResourceName]int64{corev1.ResourceCPU: c.cpuPrice, corev1.ResourceMemory: c.memoryPrice},
		})
	}
	return p
}

func (p *sluicePlacer) place(r request) int {
	d, err := p.inventory.Place(placement.Request{
		ID: r.id, Weights: p.weights,
		Resources: placement.Resources{corev1.ResourceCPU: r.cpu, corev1.ResourceMemory: r.memory << 20},
	})
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

func newSimple(fleet []cluster, better func(*simple, request, int, int) bool) *simple {
	return &simple{append([]cluster(nil), fleet...), better, map[string]int{}}
}

// slack returns the sum of the shares of a cluster that would stay free.
func (f *simple) slack(i int, r request) float64 {
	c := &f.fleet[i]
	return float64(c.cpu-c.usedCPU-r.cpu)/float64(c.cpu) + float64(c.memory-c.usedMemory-r.memory)/float64(c.memory)
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
		f.fleet[i].usedCPU += r.cpu
		f.fleet[i].usedMemory += r.memory
		f.on[r.id] = i
	}
	return i
}

func (f *simple) release(r request) {
	if i, ok := f.on[r.id]; ok {
		f.fleet[i].usedCPU -= r.cpu
		f.fleet[i].usedMemory -= r.memory
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
			weights[i] = min((c.cpu-c.usedCPU)/r.cpu, (c.memory-c.usedMemory)/r.memory)
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
