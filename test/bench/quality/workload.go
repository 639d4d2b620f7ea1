package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
)

// workload is a fleet and the requests that come to it.
type workload struct {
	resources []corev1.ResourceName
	fleet     []cluster
	requests  []request
}

// total returns what the fleet has of a resource, and what all requests ask for together.
func (w workload) total(i int) (has, asked int64) {
	for _, c := range w.fleet {
		has += c.has[i]
	}
	for _, r := range w.requests {
		asked += r.asks[i]
	}
	return has, asked
}

// scarcest returns the resource of which the most is asked for, of what there is.
func (w workload) scarcest() (scarcest int) {
	most := 0.0
	for i := range w.resources {
		if has, asked := w.total(i); has > 0 && share(asked, has) > most {
			scarcest, most = i, share(asked, has)
		}
	}
	return scarcest
}

// fleetOf has clusters of three sizes and two shapes, of five providers whose prices
// differ by up to a half.
func fleetOf(n int, random *rand.Rand) []cluster {
	fleet := make([]cluster, n)
	for i := range fleet {
		size := []int64{16, 32, 64}[random.IntN(3)]
		provider := random.IntN(5)
		fleet[i] = cluster{
			name: fmt.Sprintf("cluster-%03d", i), provider: fmt.Sprintf("provider-%d", provider),
			has: amounts{size * 1000, size << 10 * []int64{4, 8}[random.IntN(2)]}, used: make(amounts, 2),
			prices: amounts{int64(30+provider*4+random.IntN(4)) * 1e6, int64(3+provider) * 1e6},
		}
	}
	return fleet
}

// draw is a request from a heavy-tailed mix: most are small, a few take half a cluster;
// some want cores, some memory.
func draw(id int, random *rand.Rand) request {
	cores := []int64{250, 500, 500, 1000, 1000, 2000, 4000, 8000}[min(random.IntN(8), random.IntN(10))]
	return request{id: fmt.Sprintf("si-%05d", id), asks: amounts{cores, cores * 1024 / 1000 * []int64{2, 4, 4, 8, 8}[random.IntN(5)]}, arrive: id}
}

// steady requests come until nothing more fits, and stay.
func steady(scale int) workload {
	random := seeded(1)
	w := workload{resources: common, fleet: fleetOf(200/scale, random)}
	for i := range 9000 / scale {
		w.requests = append(w.requests, draw(i, random))
	}
	return w
}

// churn keeps about 85 % of the cores sold, by as many coming as going.
func churn(scale int) workload {
	random := seeded(2)
	w := workload{resources: common, fleet: fleetOf(200/scale, random)}
	all, _ := w.total(cpu)
	const meanCPU = 1170 // of draw
	stay := int(all * 85 / 100 / meanCPU)
	for i := range 15000 / scale {
		r := draw(i, random)
		r.leave = i + 1 + random.IntN(2*stay)
		w.requests = append(w.requests, r)
	}
	return w
}

// result of a workload.
type result struct {
	soldAtFirstRefusal, sold, accepted float64
	// stranded is the share of the cores that is free where no memory is, or the other way
	// round: less than what the median request takes.
	stranded      float64
	price         float64 // EUR per core-hour sold
	jainClusters  float64 // Jain's index of the share sold (Jain, Chiu and Hawe 1984)
	jainProviders float64 // and of the revenue by share of the cores
	curve, prices []point
	// Of the scarcest resource: what is sold when the first large order is refused, and in the end, and what
	// is stranded. Large orders are those that ask for at least half as much of it as the largest one.
	largeAccepted, soldAtLarge, soldScarce, strandedScarce float64
}

// play has a placer serve the workload, and keeps its own books.
func (w workload) play(p placer) result {
	books := copied(w.fleet)
	on := map[string]int{}
	leaving := map[int][]request{}
	var r result
	capacity, _ := w.total(cpu)
	var sold, accepted int64
	var revenue float64 // billionths of a euro an hour
	scarce := w.scarcest()
	isLarge := w.isLarge(scarce)
	var scarceSold, large, largeAccepted int64
	scarceHas, _ := w.total(scarce)
	r.soldAtLarge = 1
	refused, largeRefused := false, false
	every := max(len(w.requests)/60, 1)
	change := func(one request, i int, sign int64) {
		c := &books[i]
		c.take(one, sign)
		for k := range c.has {
			if c.free(k) < 0 {
				panic(fmt.Sprintf("%s is sold beyond its capacity", c.name))
			}
		}
		sold, scarceSold = sold+sign*one.asks[cpu], scarceSold+sign*one.asks[scarce]
		if len(c.prices) == 0 {
			return
		}
		revenue += float64(sign) * (float64(one.asks[cpu])/1000*float64(c.prices[cpu]) + float64(one.asks[memory])/1024*float64(c.prices[memory]))
	}
	for now, one := range w.requests {
		for _, gone := range leaving[now] {
			change(gone, on[gone.id], -1)
			p.release(gone)
		}
		i := p.place(one)
		if isLarge(one) {
			large++
			switch {
			case i >= 0:
				largeAccepted++
			case !largeRefused:
				largeRefused, r.soldAtLarge = true, share(scarceSold, scarceHas)
			}
		}
		if i >= 0 {
			on[one.id] = i
			change(one, i, 1)
			accepted++
			if one.leave > 0 {
				leaving[one.leave] = append(leaving[one.leave], one)
			}
		} else if !refused {
			refused = true
			r.soldAtFirstRefusal = share(sold, capacity)
		}
		if now%every == 0 && sold > 0 {
			r.curve = append(r.curve, point{float64(now), 100 * share(sold, capacity)})
			r.prices = append(r.prices, point{100 * share(sold, capacity), revenue / 1e9 / (float64(sold) / 1000)})
		}
	}
	r.sold, r.accepted = share(sold, capacity), share(accepted, int64(len(w.requests)))
	r.price = revenue / 1e9 / (float64(sold) / 1000)
	r.largeAccepted, r.soldScarce, r.strandedScarce = share(largeAccepted, large), share(scarceSold, scarceHas), w.strandedOf(scarce, books)
	r.finish(books)
	return r
}

func share(part, whole int64) float64 { return float64(part) / float64(whole) }

func (r *result) finish(books []cluster) {
	var shares []float64
	income, cores := map[string]float64{}, map[string]float64{}
	var order []string
	var capacity, stranded int64
	for _, c := range books {
		capacity += c.has[cpu]
		shares = append(shares, share(c.used[cpu], c.has[cpu]))
		if c.free(memory) < 4<<10 { // no room for the median request
			stranded += c.free(cpu)
		}
		if _, known := cores[c.provider]; !known {
			order = append(order, c.provider)
		}
		cores[c.provider] += float64(c.has[cpu])
		if len(c.prices) > 0 {
			income[c.provider] += float64(c.used[cpu]) * float64(c.prices[cpu])
		}
	}
	var perCore []float64
	for _, provider := range order {
		perCore = append(perCore, income[provider]/cores[provider])
	}
	r.stranded = share(stranded, capacity)
	r.jainClusters, r.jainProviders = jain(shares), jain(perCore)
}

// jain is (Σx)² / (n·Σx²): 1 where all are equal, 1/n where one has it all.
func jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(x)) * squares)
}
