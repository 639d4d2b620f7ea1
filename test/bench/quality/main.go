// Command quality measures how good placements are, not how fast: how full the
// clusters become, what that costs, and how evenly it falls on clusters and
// providers. Sluice's own engine is compared with plain strategies and, on small
// cases, with the exact optimum. Everything is generated from fixed seeds: the output
// is the same on every machine.
//
//	go run ./test/bench/quality                     # tables
//	go run ./test/bench/quality -plots docs/img     # and plots
//	go run ./test/bench/quality -recording FILE     # what a hub has sold, by `sluice place --record FILE`
//	go run ./test/bench/quality -nodes FILE -tasks FILE   # a trace, see docs/quality.md
//	go run ./test/bench/quality -quick              # a smoke test
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	plots := flag.String("plots", "", "folder for the plots")
	quick := flag.Bool("quick", false, "small workloads; the figures mean little")
	recording := flag.String("recording", "", "file of `sluice place --record`, played instead of what is generated")
	nodes := flag.String("nodes", "", "CSV file of nodes, played with -tasks instead of what is generated")
	tasks := flag.String("tasks", "", "CSV file of tasks")
	demand := flag.Int64("demand", 100, "percentage of the scarcest resource that tasks without times ask for together")
	flag.Parse()
	if *nodes != "" || *tasks != "" {
		if err := runTrace(os.Stdout, *nodes, *tasks, *demand); err != nil {
			fmt.Fprintln(os.Stderr, "quality:", err)
			os.Exit(1)
		}
		return
	}
	if *recording != "" {
		if err := runRecorded(os.Stdout, *recording); err != nil {
			fmt.Fprintln(os.Stderr, "quality:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(os.Stdout, *plots, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

// runRecorded prints the table of a recording.
func runRecorded(out io.Writer, file string) error {
	w, err := recorded(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "### As recorded: %d reservations on %d clusters\n\n", len(w.requests), len(w.fleet))
	playAll(out, func() workload { return w })
	return nil
}

// runTrace prints how every placer serves a trace.
func runTrace(out io.Writer, nodes, tasks string, demand int64) error {
	t, err := readTrace(nodes, tasks)
	if err != nil {
		return err
	}
	n := seeds
	if t.timed {
		n = 1
	}
	w := t.of(0, demand)
	fmt.Fprintf(out, "### As in the trace: %d tasks on %d clusters; the scarcest resource is %s\n\n", len(w.requests), len(w.fleet), w.resources[w.scarcest()])
	show(out, contest(competing(), n, func(seed uint64) workload { return t.of(seed, demand) }))
	return nil
}

// seeds is how often what is drawn at random is played.
const seeds = 10

// playAll prints how every placer serves a workload.
func playAll(out io.Writer, workload func() workload) {
	fmt.Fprint(out, "| Placer | Accepted | Stranded | EUR per core-hour | Jain, clusters |\n|---|---:|---:|---:|---:|\n")
	for _, p := range placers() {
		w := workload()
		r := w.play(p.new(w))
		fmt.Fprintf(out, "| %s | %.1f %% | %.1f %% | %.4f | %.3f |\n", p.name, 100*r.accepted, 100*r.stranded, r.price, r.jainClusters)
	}
}

// run prints all tables and writes the plots, if a folder is given.
func run(out io.Writer, plots string, quick bool) error {
	scale := 1
	if quick {
		scale = 10
	}
	full := plot{title: "Capacity sold as requests arrive", x: "requests asked for", y: "share of the cores sold (%)"}
	price := plot{title: "Price of what is sold", x: "share of the cores sold (%)", y: "EUR per core and hour"}

	fmt.Fprint(out, "### Until nothing more fits\n\n| Placer | Sold when first refused | Sold in the end | Accepted | Stranded | EUR per core-hour | Jain, clusters | Jain, providers |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, p := range placers() {
		w := steady(scale)
		r := w.play(p.new(w))
		fmt.Fprintf(out, "| %s | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.4f | %.3f | %.3f |\n", p.name,
			100*r.soldAtFirstRefusal, 100*r.sold, 100*r.accepted, 100*r.stranded, r.price, r.jainClusters, r.jainProviders)
		if p.plotted {
			full.lines = append(full.lines, line{p.name, r.curve})
			price.lines = append(price.lines, line{p.name, r.prices})
		}
	}

	fmt.Fprint(out, "\n### Coming and going at 85 % load\n\n")
	playAll(out, func() workload { return churn(scale) })

	fmt.Fprint(out, "\n### Where GPUs are scarce\n\n")
	show(out, contest(competing(), seeds/min(scale, 5), func(seed uint64) workload { return withGPUs(seed, scale) }))
	fmt.Fprint(out, "### Where orders are as large as clusters\n\n")
	show(out, contest(competing(), seeds/min(scale, 5), func(seed uint64) workload { return withoutGPUs(seed, scale) }))

	fmt.Fprint(out, "### Beside the optimum\n\nMean share of the most requests that can be placed knowing all of them in advance, and the worst case.\n\n| Placer | Mean | Worst |\n|---|---:|---:|\n")
	cases := solve(200 / scale)
	for _, p := range placers() {
		mean, worst := besideOptimum(p, cases)
		fmt.Fprintf(out, "| %s | %.1f %% | %.1f %% |\n", p.name, 100*mean, 100*worst)
	}
	if plots == "" {
		return nil
	}
	for name, p := range map[string]plot{"placement-packing.svg": full, "placement-price.svg": price} {
		if err := os.WriteFile(filepath.Join(plots, name), []byte(p.svg()), 0o600); err != nil {
			return err
		}
	}
	return nil
}
