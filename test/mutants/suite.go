package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/cover"
)

// suite is the tests of a package, compiled with mutants behind the switch.
type suite struct {
	folder, scratch string
	binary          string
	tests           []*test // the fastest first
}

// test is a test, and what it reaches of the package.
type test struct {
	name    string
	takes   time.Duration
	reaches []*cover.Profile
	sound   atomic.Bool // passed with the switch, but without a mutant
}

// attempts is how often a test is run that fails without a change: the machine may be busy.
const attempts = 3

// newSuite compiles the tests, and runs each alone on the package as it is. A test that fails there is left out.
func newSuite(ctx context.Context, folder, overlay, scratch string, workers int) (*suite, error) {
	s := &suite{folder: folder, scratch: scratch, binary: filepath.Join(scratch, "mutants.test")}
	covered := filepath.Join(scratch, "cover.test")
	for _, args := range [][]string{
		{"test", "-c", "-vet=off", "-overlay", overlay, "-o", s.binary, folder},
		{"test", "-c", "-vet=off", "-cover", "-o", covered, folder},
	} {
		if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	list := exec.CommandContext(ctx, covered, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = folder
	names, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, name := range strings.Fields(string(names)) {
		t := &test{name: name}
		group.Go(func() error {
			profile := filepath.Join(scratch, name+".cover")
			var out []byte
			var err error
			for range attempts {
				began := time.Now()
				if out, err = s.run(ctx, covered, t, 20*time.Minute, 0, "-test.coverprofile", profile); err == nil {
					mu.Lock()
					defer mu.Unlock()
					s.tests = append(s.tests, t)
					t.takes = time.Since(began)
					t.reaches, err = cover.ParseProfiles(profile)
					return err
				}
			}
			fmt.Printf("left out: %s fails without a change: %v\n%s", name, err, out)
			return ctx.Err()
		})
	}
	err = group.Wait()
	slices.SortFunc(s.tests, func(a, b *test) int { return cmp.Compare(a.takes, b.takes) })
	return s, err
}

// run runs one test of a binary, with a mutant unless that is 0.
func (s *suite) run(ctx context.Context, binary string, t *test, patience time.Duration, mutant int, args ...string) (output []byte, err error) {
	temporary, err := os.MkdirTemp(s.scratch, "")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	args = append(args, "-test.run", "^"+t.name+"$", "-test.failfast", "-test.paniconexit0", "-test.timeout", patience.String())
	command := exec.CommandContext(ctx, binary, args...)
	command.Dir = s.folder
	command.Env = append(os.Environ(), chosen+"="+strconv.Itoa(mutant), "TMPDIR="+temporary)
	return command.CombinedOutput()
}

// try runs the tests that reach a mutant, until one fails.
func (s *suite) try(ctx context.Context, m mutant) (end fate, by string, err error) {
	by = "no test reaches it"
	for _, t := range s.tests {
		if !t.reachesMutant(m) {
			continue
		}
		by = "all pass"
		if s.notices(ctx, t, m) {
			return died, t.name, ctx.Err()
		}
	}
	return survived, by, ctx.Err()
}

// notices reports whether a test fails because of a mutant. Where the machine's load may be the reason, or
// the switch, the test must pass right afterwards without the mutant.
func (s *suite) notices(ctx context.Context, t *test, m mutant) bool {
	patience := 10*t.takes + time.Minute
	for range attempts {
		began := time.Now()
		if _, failed := s.run(ctx, s.binary, t, patience, m.id); failed == nil {
			return false
		}
		if t.sound.Load() && time.Since(began) < 2*t.takes {
			return true
		}
		if _, failed := s.run(ctx, s.binary, t, patience, 0); failed == nil {
			t.sound.Store(true)
			return true
		}
	}
	return false
}

// reachesMutant reports whether the test runs the statements that a mutant changes. The conditions of a
// switch belong to no block of statements: there it is the function that counts.
func (t *test) reachesMutant(m mutant) bool {
	for _, file := range t.reaches {
		if filepath.Base(file.FileName) != filepath.Base(m.path) {
			continue
		}
		inFunction := false
		for _, b := range file.Blocks {
			if isBefore(b.StartLine, b.StartCol, m.line, m.column) && isBefore(m.line, m.column, b.EndLine, b.EndCol) {
				return b.Count > 0
			}
			inFunction = inFunction || b.Count > 0 && m.first <= b.StartLine && b.EndLine <= m.last
		}
		return inFunction
	}
	return false
}

// isBefore reports whether a position of a file is not behind another.
func isBefore(line, column, otherLine, otherColumn int) bool {
	return line < otherLine || line == otherLine && column <= otherColumn
}
