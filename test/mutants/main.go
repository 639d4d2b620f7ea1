package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

func main() {
	sample := flag.Int("sample", 200, "how many mutants of each package")
	seed := flag.Uint64("seed", 1, "of the choice")
	workers := flag.Int("workers", 2, "how many at the same time")
	least := flag.Float64("least", 90, "percent of them that must be killed")
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
		killed, lived, err := try(ctx, folder, *sample, *workers, *seed, past)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", folder, err)
			os.Exit(1)
		}
		percent := 100 * float64(killed) / float64(max(killed+lived, 1))
		fmt.Printf("%s: %d of %d mutants killed, %.1f %%\n", folder, killed, killed+lived, percent)
		weak = weak || percent < *least
	}
	if weak {
		os.Exit(1)
	}
}

// try runs the tests of a package on a sample of its mutants.
func try(ctx context.Context, folder string, sample, workers int, seed uint64, past *record) (killed, lived int, err error) {
	began := time.Now()
	if out, err := test(ctx, folder, "", 20*time.Minute); err != nil {
		return 0, 0, fmt.Errorf("its tests fail without a change: %w\n%s", err, out)
	}
	patience := 3*time.Since(began) + time.Minute
	all, err := mutants(folder)
	if err != nil {
		return 0, 0, err
	}
	fmt.Printf("%s: a sample of %d of %d mutants; its tests take %s\n", folder, min(sample, len(all)), len(all), time.Since(began).Round(time.Second))
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })

	var mu sync.Mutex
	var failed error
	next := 0
	count := func(m mutant, end fate) {
		switch end {
		case survived:
			lived++
			fmt.Printf("survived: %s\n", m)
		case died:
			killed++
		}
	}
	take := func() (m mutant, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		for failed == nil && next < len(all) && killed+lived < sample && ctx.Err() == nil {
			next++
			end, known := past.of(all[next-1])
			if !known {
				return all[next-1], true
			}
			count(all[next-1], end)
		}
		return m, false
	}
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for m, ok := take(); ok; m, ok = take() {
				end, err := m.run(ctx, folder, patience)
				mu.Lock()
				if ctx.Err() == nil {
					failed = errors.Join(failed, err, past.add(m, end))
					count(m, end)
				}
				if n := killed + lived; n%20 == 0 && end != invalid {
					fmt.Printf("%s: %d of %d, %s\n", folder, n, sample, time.Since(began).Round(time.Second))
				}
				mu.Unlock()
			}
		})
	}
	working.Wait()
	return killed, lived, errors.Join(failed, ctx.Err())
}

// fate is the result of the tests with a mutant.
type fate int

const (
	invalid fate = iota // it does not compile
	died
	survived
)

// fateNames are the words of the record, by fate.
var fateNames = [...]string{invalid: "invalid", died: "killed", survived: "survived"}

// run runs the package's tests on one mutant.
func (m mutant) run(ctx context.Context, folder string, patience time.Duration) (fate, error) {
	source, err := m.source()
	if err != nil {
		return invalid, nil // the change is no Go
	}
	scratch, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return invalid, err
	}
	defer os.RemoveAll(scratch)
	original, err := filepath.Abs(m.path)
	if err != nil {
		return invalid, err
	}
	changed, overlay := filepath.Join(scratch, "changed.go"), filepath.Join(scratch, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return invalid, err
	}
	if err := errors.Join(os.WriteFile(changed, source, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return invalid, err
	}
	out, err := test(ctx, folder, overlay, patience)
	switch {
	case err == nil:
		return survived, nil
	case strings.Contains(out, "[build failed]"):
		return invalid, nil
	default:
		return died, nil
	}
}

// test runs the tests of a package, with an overlay unless that is empty.
func test(ctx context.Context, folder, overlay string, patience time.Duration) (output string, err error) {
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout", patience.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	command := exec.CommandContext(ctx, "go", append(args, folder)...)
	out, err := command.CombinedOutput()
	return string(out), err
}
