package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// Workloads where one resource is scarce: some clusters have none of it, and orders come in all sizes.

// withGPUs is a fleet of which most clusters have two to eight GPUs, and orders until they ask for all GPUs
// that there are: two in five want none, of the others one in five wants four or eight. Cores and memory beside a GPU
// have a heavy tail (log-normal), so that some orders take those of several GPUs.
func withGPUs(seed uint64, scale int) workload {
	random := seeded(100 + seed)
	w := workload{resources: append(slices.Clone(common), "example.com/gpu")}
	for i := range 200 / scale {
		shape := amounts{96_000, 384 << 10, 0}
		switch random.IntN(10) {
		case 0, 1, 2:
		case 3, 4:
			shape = amounts{64_000, 256 << 10, 2}
		case 5, 6:
			shape = amounts{64_000, 256 << 10, 4}
		default:
			shape = amounts{int64(96_000 + 32_000*random.IntN(2)), int64(512+256*random.IntN(2)) << 10, 8}
		}
		w.fleet = append(w.fleet, cluster{name: fmt.Sprintf("cluster-%03d", i), has: shape, used: make(amounts, len(shape))})
	}
	return w.until(100, func() amounts {
		if random.IntN(5) < 2 {
			cores := tail(random, 8000, 1.2, 500, 96_000)
			return amounts{cores, min(cores*tail(random, 4096, 0.7, 512, 32<<10)/1000, 256<<10), 0}
		}
		gpus := []int64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 4, 4, 8, 8}[random.IntN(20)]
		most := amounts{60_000, 250 << 10}
		if gpus == 8 {
			most = amounts{90_000, 500 << 10}
		}
		return amounts{tail(random, gpus*10_000, 0.8, 500, most[cpu]), tail(random, gpus*44<<10, 0.8, 1<<10, most[memory]), gpus}
	})
}

// withoutGPUs is a fleet of cores and memory, and orders of which every second is twice as large as the ones before, up
// to a whole cluster.
func withoutGPUs(seed uint64, scale int) workload {
	random := seeded(200 + seed)
	w := workload{resources: common}
	for i := range 200 / scale {
		cores := []int64{32, 64, 64}[random.IntN(3)]
		w.fleet = append(w.fleet, cluster{
			name: fmt.Sprintf("cluster-%03d", i), has: amounts{cores * 1000, cores << 10 * []int64{4, 8}[random.IntN(2)]}, used: make(amounts, 2),
		})
	}
	return w.until(100, func() amounts {
		cores := int64(1)
		for cores < 64 && random.IntN(2) == 0 {
			cores *= 2
		}
		return amounts{cores * 1000, min(cores*[]int64{2, 4, 4, 8}[random.IntN(4)]<<10, 256<<10)}
	})
}

// tail draws from a log-normal distribution by its median, in steps of least.
func tail(random *rand.Rand, median int64, sigma float64, least, most int64) int64 {
	drawn := int64(float64(median) * math.Exp(sigma*random.NormFloat64()))
	return min(max(drawn/least*least, least), most)
}

// until draws requests until they ask for a percentage of what there is of any resource.
func (w workload) until(percent int64, draw func() amounts) workload {
	has, asked := make([]int64, len(w.resources)), make([]int64, len(w.resources))
	for i := range has {
		has[i], _ = w.total(i)
	}
	for {
		r := request{id: fmt.Sprintf("si-%05d", len(w.requests)), asks: draw(), arrive: len(w.requests)}
		for i, amount := range r.asks {
			if asked[i] += amount; has[i] > 0 && asked[i]*100 > has[i]*percent {
				return w
			}
		}
		w.requests = append(w.requests, r)
	}
}

// isLarge reports which requests ask for at least half as much of a resource as the largest one.
func (w workload) isLarge(scarce int) func(request) bool {
	most := int64(0)
	for _, r := range w.requests {
		most = max(most, r.asks[scarce])
	}
	return func(r request) bool { return 2*r.asks[scarce] >= most }
}

// strandedOf is the share of a resource that is free without what the median order takes of the others beside it.
func (w workload) strandedOf(scarce int, books []cluster) float64 {
	beside := make([]float64, len(w.resources))
	for i := range beside {
		var each []float64
		for _, r := range w.requests {
			if r.asks[scarce] > 0 {
				each = append(each, share(r.asks[i], r.asks[scarce]))
			}
		}
		slices.Sort(each)
		if i != scarce && len(each) > 0 {
			beside[i] = each[len(each)/2]
		}
	}
	stranded := 0.0
	for _, c := range books {
		usable := math.Inf(1)
		for i, each := range beside {
			if each > 0 {
				usable = min(usable, float64(c.free(i))/each)
			}
		}
		stranded += max(float64(c.free(scarce))-usable, 0)
	}
	has, _ := w.total(scarce)
	return stranded / float64(has)
}

// figure of a contest.
type figure struct {
	name string
	of   func(result) float64
}

var figures = []figure{
	{"Accepted", func(r result) float64 { return r.accepted }},
	{"Large orders accepted", func(r result) float64 { return r.largeAccepted }},
	{"Sold when the first large order is refused", func(r result) float64 { return r.soldAtLarge }},
	{"Sold in the end", func(r result) float64 { return r.soldScarce }},
	{"Stranded", func(r result) float64 { return r.strandedScarce }},
}

// standing has the results of a placer: each figure's mean and standard deviation over the seeds.
type standing struct {
	name      string
	mean, dev []float64
}

// competing are the placers of a contest.
func competing() []strategy { return slices.Concat(ours(), plain()) }

// contest plays workloads against placers.
func contest(placers []strategy, seeds int, workload func(seed uint64) workload) (table []standing) {
	for _, p := range placers {
		s := standing{p.name, make([]float64, len(figures)), make([]float64, len(figures))}
		squares := make([]float64, len(figures))
		for seed := range seeds {
			w := workload(uint64(seed)) // not negative
			r := w.play(p.new(w))
			for i, f := range figures {
				s.mean[i] += f.of(r) / float64(seeds)
				squares[i] += f.of(r) * f.of(r) / float64(seeds)
			}
		}
		for i := range figures {
			s.dev[i] = math.Sqrt(max(squares[i]-s.mean[i]*s.mean[i], 0))
		}
		table = append(table, s)
	}
	return table
}

// show prints the standings.
func show(out io.Writer, table []standing) {
	fmt.Fprint(out, "| Placer |")
	for _, f := range figures {
		fmt.Fprintf(out, " %s |", f.name)
	}
	fmt.Fprint(out, "\n|---|---:|---:|---:|---:|---:|\n")
	for _, s := range table {
		fmt.Fprintf(out, "| %s |", s.name)
		for i := range figures {
			fmt.Fprintf(out, " %.1f ± %.1f %% |", 100*s.mean[i], 100*s.dev[i])
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
}
