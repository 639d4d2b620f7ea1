// Package fleet is what the peers' benchmarks share: the same synthetic fleet, the same
// questions, and one way of measuring. It depends on nothing, so that each peer keeps
// the versions that it was built with.
package fleet

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// Cluster of a fleet: 64 cores and 256 GiB, in one of several regions.
type Cluster struct {
	Name, Region string
	Prod         bool // half of them
	Tainted      bool // a tenth
	UsedPercent  int  // 0 to 94
}

// What every cluster has.
const (
	Cores       = 64
	MemoryGiB   = 256
	RegionLabel = "topology.kubernetes.io/region"
	StageLabel  = "stage"
	TaintKey    = "dedicated"
)

// Of returns a fleet of n clusters in so many regions.
func Of(n, regions int) []Cluster {
	clusters := make([]Cluster, n)
	for i := range clusters {
		clusters[i] = Cluster{
			Name: fmt.Sprintf("cluster-%05d", i), Region: fmt.Sprintf("region-%02d", i%regions),
			Prod: i/regions%2 == 0, Tainted: i%10 == 3, UsedPercent: i * 7 % 95,
		}
	}
	return clusters
}

// Stage is the value of StageLabel.
func (c Cluster) Stage() string {
	if c.Prod {
		return "prod"
	}
	return "test"
}

// Question to a placer: clusters that take half a core and one GiB.
type Question struct {
	Name string
	// Prod asks for clusters with stage=prod only.
	Prod bool
	// Clusters to choose, over so many groups by region; zero groups means wherever.
	Clusters, Groups int
	// Regions of the fleet, and its sizes.
	Regions int
	Sizes   []int
}

// Questions in the order in which they are asked.
func Questions() []Question {
	all := []int{10, 100, 1000, 10000, 50000}
	questions := []Question{
		{Name: "one cluster, stage=prod", Prod: true, Clusters: 1, Regions: 20, Sizes: all},
		{Name: "one cluster, any", Clusters: 1, Regions: 20, Sizes: all},
		{Name: "12 over 3 of 20 regions, stage=prod", Prod: true, Clusters: 12, Groups: 3, Regions: 20, Sizes: all[2:]},
	}
	for _, regions := range []int{20, 40, 60} {
		questions = append(questions, Question{
			Name: fmt.Sprintf("5 over 5 of %d regions", regions), Clusters: 5, Groups: 5, Regions: regions, Sizes: []int{240},
		})
	}
	return questions
}

// Burst is the other question: a fleet with room for so many, and more of them asked
// for back to back.
const (
	BurstRoom  = 20
	BurstAsked = 100
)

// Figure is one measurement.
type Figure struct {
	Placer   string `json:"placer"`
	Question string `json:"question"`
	Clusters int    `json:"clusters"`
	// P50 and P99 of one decision, in nanoseconds; zero where it could not be made.
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	// Bytes and Allocations of one decision.
	Bytes       uint64 `json:"bytes"`
	Allocations uint64 `json:"allocations"`
	Decisions   int    `json:"decisions"`
	// Note instead of figures: why there are none, or what the burst came to.
	Note string `json:"note,omitempty"`
}

// Flags of every benchmark.
var (
	Budget = flag.Duration("budget", 2*time.Second, "time for one measurement")
	Quick  = flag.Bool("quick", false, "small fleets only; the figures mean little")
)

// Emit prints a figure for the report.
func Emit(f Figure) {
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		panic(err)
	}
}

// Run asks all questions; prepare makes a placer of a fleet, or says that it has no
// such question.
func Run(placer string, prepare func(Question, []Cluster) (decide func() error, lacks string)) {
	for _, q := range Questions() {
		slow := false
		for _, n := range q.Sizes {
			if *Quick && n > 240 {
				continue
			}
			f := Figure{Placer: placer, Question: q.Name, Clusters: n}
			if slow {
				f.Note = "not measured: one decision on the fleet before took over a second"
				Emit(f)
				continue
			}
			fmt.Fprintf(os.Stderr, "%s: %s among %d\n", placer, q.Name, n)
			decide, lacks := prepare(q, Of(n, q.Regions))
			if lacks != "" {
				f.Note = lacks
				Emit(f)
				break
			}
			measure(&f, decide)
			slow = f.P50 > int64(time.Second)
			Emit(f)
		}
	}
}

// measure decides over and over: twice to warm up, then until the budget is used up.
func measure(f *Figure, decide func() error) {
	for range 2 {
		began := time.Now()
		if err := decide(); err != nil {
			f.Note = "fails: " + err.Error()
			return
		}
		if time.Since(began) > 10*time.Second {
			f.P50, f.P99, f.Decisions, f.Note = int64(time.Since(began)), int64(time.Since(began)), 1, "once"
			return
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var times []time.Duration
	for began := time.Now(); time.Since(began) < *Budget && len(times) < 200_000 || len(times) < 5; {
		start := time.Now()
		if err := decide(); err != nil {
			f.Note = "fails: " + err.Error()
			return
		}
		times = append(times, time.Since(start))
	}
	runtime.ReadMemStats(&after)
	slices.Sort(times)
	f.Decisions = len(times)
	f.P50, f.P99 = int64(times[len(times)/2]), int64(times[len(times)*99/100])
	f.Bytes = (after.TotalAlloc - before.TotalAlloc) / uint64(len(times))
	f.Allocations = (after.Mallocs - before.Mallocs) / uint64(len(times))
}

// BurstQuestion names the burst in the report.
var BurstQuestion = fmt.Sprintf("room for %d, %d asked for back to back", BurstRoom, BurstAsked)

// BurstNote says how the burst went.
func BurstNote(accepted int) string {
	return fmt.Sprintf("%d accepted, %d oversold", accepted, max(accepted-BurstRoom, 0))
}
