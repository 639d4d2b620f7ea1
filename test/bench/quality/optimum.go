package main

import "slices"

// smallCase is a workload of which the optimum can be worked out.
func smallCase(seed uint64) workload {
	random := seeded(1000 + seed)
	w := workload{resources: common}
	for _, c := range fleetOf(2+random.IntN(3), random) {
		c.has[cpu], c.has[memory] = c.has[cpu]/8, c.has[memory]/8
		w.fleet = append(w.fleet, c)
	}
	for i := range 10 {
		w.requests = append(w.requests, draw(i, random))
	}
	return w
}

// optimum is the largest number of requests that can be placed together: branch and
// bound over the requests, the smallest first.
func optimum(w workload) int {
	requests := slices.Clone(w.requests)
	slices.SortFunc(requests, func(a, b request) int { return int(a.asks[cpu] - b.asks[cpu] + (a.asks[memory]-b.asks[memory])/4) })
	fleet := copied(w.fleet)
	best := 0
	var try func(at, placed int)
	try = func(at, placed int) {
		best = max(best, placed)
		if placed+len(requests)-at <= best {
			return
		}
		r := requests[at]
		seen := map[[2]int64]bool{} // clusters with the same room are the same
		for i := range fleet {
			room := [2]int64{fleet[i].free(cpu), fleet[i].free(memory)}
			if !fleet[i].fits(r) || seen[room] {
				continue
			}
			seen[room] = true
			fleet[i].take(r, 1)
			try(at+1, placed+1)
			fleet[i].take(r, -1)
		}
		try(at+1, placed)
	}
	try(0, 0)
	return best
}

// besideOptimum is the mean and the worst share of the optimum over random small cases.
func besideOptimum(s strategy, cases []solved) (mean, worst float64) {
	worst = 1
	for _, w := range cases {
		p := s.new(w.workload)
		placed := 0
		for _, r := range w.requests {
			if p.place(r) >= 0 {
				placed++
			}
		}
		ratio := float64(placed) / float64(w.best)
		mean += ratio / float64(len(cases))
		worst = min(worst, ratio)
	}
	return mean, worst
}

// solved is a workload with its optimum.
type solved struct {
	workload
	best int
}

func solve(cases int) (all []solved) {
	for seed := range cases {
		w := smallCase(uint64(seed)) // not negative
		all = append(all, solved{w, optimum(w)})
	}
	return all
}
