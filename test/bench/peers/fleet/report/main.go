// Command report reads figures as JSON lines and prints them as Markdown tables, one a
// question, the placers side by side.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/test/bench/peers/fleet"
)

func main() {
	var figures []fleet.Figure
	for decoder := json.NewDecoder(os.Stdin); ; {
		var f fleet.Figure
		if err := decoder.Decode(&f); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
			os.Exit(1)
		}
		figures = append(figures, f)
	}
	var placers, questions []string
	for _, f := range figures {
		if !slices.Contains(placers, f.Placer) {
			placers = append(placers, f.Placer)
		}
		if !slices.Contains(questions, f.Question) {
			questions = append(questions, f.Question)
		}
	}
	for _, q := range questions {
		fmt.Printf("### %s\n\n| Clusters | %s |\n|---:|%s\n", q, strings.Join(placers, " | "), strings.Repeat("---:|", len(placers)))
		var sizes []int
		for _, f := range figures {
			if f.Question == q && !slices.Contains(sizes, f.Clusters) {
				sizes = append(sizes, f.Clusters)
			}
		}
		slices.Sort(sizes)
		for _, n := range sizes {
			fmt.Printf("| %d |", n)
			for _, p := range placers {
				i := slices.IndexFunc(figures, func(f fleet.Figure) bool { return f.Placer == p && f.Question == q && f.Clusters == n })
				fmt.Printf(" %s |", cell(figures, i))
			}
			fmt.Println()
		}
		fmt.Println()
	}
}

// cell is p50, p99, and garbage of a decision.
func cell(figures []fleet.Figure, i int) string {
	if i < 0 {
		return "–"
	}
	f := figures[i]
	if f.P50 == 0 {
		return f.Note
	}
	text := fmt.Sprintf("%s (%s), %s", milliseconds(f.P50), milliseconds(f.P99), kilobytes(f.Bytes))
	if f.Note != "" {
		text += ", " + f.Note
	}
	return text
}

func milliseconds(ns int64) string {
	return fmt.Sprintf("%.3g ms", float64(ns)/float64(time.Millisecond))
}

func kilobytes(bytes uint64) string { return fmt.Sprintf("%.3g kB", float64(bytes)/1000) }
