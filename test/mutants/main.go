package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	sample := flag.Int("sample", 200, "how many mutants of each package")
	seed := flag.Uint64("seed", 1, "of the choice")
	workers := flag.Int("workers", 2, "how many tests at the same time")
	least := flag.Float64("least", 90, "percent of the mutants that must be killed")
	path := flag.String("record", "", "file that keeps the results, from which an interrupted run goes on; none if empty")
	flag.Parse()
	past, err := openRecord(*path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	weak := false
	for _, folder := range flag.Args() {
		killed, tried, err := try(ctx, folder, *sample, *workers, *seed, past)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", folder, err)
			os.Exit(1)
		}
		percent := 100 * float64(killed) / float64(max(tried, 1))
		fmt.Printf("%s: %d of %d mutants killed, %.1f %%\n", folder, killed, tried, percent)
		weak = weak || percent < *least
	}
	if weak {
		os.Exit(1)
	}
}

// try runs the tests of a package on a sample of its mutants.
func try(ctx context.Context, folder string, sample, workers int, seed uint64, past *record) (killed, tried int, err error) {
	began := time.Now()
	all, err := mutants(folder)
	if err != nil {
		return 0, 0, err
	}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	scratch, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(scratch)
	some, description, err := choose(ctx, folder, scratch, all, sample, past)
	if err != nil {
		return 0, 0, err
	}
	tests, err := newSuite(ctx, folder, description, scratch, workers)
	if err != nil {
		return 0, 0, err
	}
	fmt.Printf("%s: a sample of %d of %d mutants; %d tests; ready after %s\n", folder, len(some), len(all), len(tests.tests), time.Since(began).Round(time.Second))

	var mu sync.Mutex
	count := func(m mutant, end fate, by string) {
		if tried++; end == died {
			killed++
		} else {
			fmt.Printf("survived: %s (%s)\n", m, by)
		}
		if tried%20 == 0 {
			fmt.Printf("%s: %d of %d, %s\n", folder, tried, len(some), time.Since(began).Round(time.Second))
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, m := range some {
		group.Go(func() error {
			end, known := past.of(m)
			by := "as recorded"
			if !known {
				var err error
				if end, by, err = tests.try(ctx, m); err != nil {
					return fmt.Errorf("%s: %w", m, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			count(m, end, by)
			return past.add(m, end)
		})
	}
	err = group.Wait()
	return killed, tried, err
}

// broken matches the errors of a compiler about a mutant.
var broken = regexp.MustCompile(`mutant-(\d+):\d+`)

// choose returns the first mutants that compile, and an overlay with all of them.
func choose(ctx context.Context, folder, scratch string, all []mutant, sample int, past *record) ([]mutant, string, error) {
	byID := map[int]mutant{}
	for _, m := range all {
		byID[m.id] = m
	}
	for {
		var some []mutant
		for _, m := range all {
			if end, known := past.of(m); len(some) < sample && (!known || end != invalid) {
				some = append(some, m)
			}
		}
		description, err := overlay(folder, some, scratch)
		if err != nil {
			return nil, "", err
		}
		out, failed := exec.CommandContext(ctx, "go", "build", "-gcflags=-e", "-overlay", description, folder).CombinedOutput()
		if failed == nil {
			return some, description, nil
		}
		invalids := 0
		for _, match := range broken.FindAllSubmatch(out, -1) {
			id, _ := strconv.Atoi(string(match[1]))
			if _, known := past.of(byID[id]); !known {
				invalids++
				err = errors.Join(err, past.add(byID[id], invalid))
			}
		}
		if invalids == 0 || err != nil {
			return nil, "", errors.Join(err, fmt.Errorf("compile: %w\n%s", failed, out))
		}
	}
}
