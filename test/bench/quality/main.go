// Command quality measures how good placements are, not how fast: how full the
// clusters become, what that costs, and how evenly it falls on clusters and
// providers. Sluice's own engine is compared with plain strategies and, on small
// cases, with the exact optimum. Everything is generated from fixed seeds: the output
// is the same on every machine.
//
//	go run ./test/bench/quality                     # tables
//	go run ./test/bench/quality -plots docs/img     # and plots
//	go run ./test/bench/quality -recording FILE     # what a hub has sold, by `sluice place --record FILE`
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
	flag.Parse()
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

// playAll prints how every placer serves a workload.
func playAll(out io.Writer, workload func() workload) {
	fmt.Fprint(out, "| Placer | Accepted | Stranded | EUR per core-hour | Jain, clusters |\n|---|---:|---:|---:|---:|\n")
	for _, p := range placers() {
		w := workload()
		r := w.play(p.new(w.fleet))
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
		r := w.play(p.new(w.fleet))
		fmt.Fprintf(out, "| %s | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %.4f | %.3f | %.3f |\n", p.name,
			100*r.soldAtFirstRefusal, 100*r.sold, 100*r.accepted, 100*r.stranded, r.price, r.jainClusters, r.jainProviders)
		if p.plotted {
			full.lines = append(full.lines, line{p.name, r.curve})
			price.lines = append(price.lines, line{p.name, r.prices})
		}
	}

	fmt.Fprint(out, "\n### Coming and going at 85 % load\n\n")
	playAll(out, func() workload { return churn(scale) })

	fmt.Fprint(out, "\n### Beside the optimum\n\nMean share of the most requests that can be placed knowing all of them in advance, and the worst case.\n\n| Placer | Mean | Worst |\n|---|---:|---:|\n")
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
