// Command bench measures Sluice as a whole: the real binary, over HTTP, on this
// machine. It prints one table a question, with the bar of the design beside what
// was measured; docs/performance.md says how to read them.
//
//	go run ./test/bench                                  # everything, about half an hour
//	go run ./test/bench -only catalog,delivery           # some of it
//	go run ./test/bench -only decisions -rows CEL        # some rows of the tables of the engine
//	go run ./test/bench -only workloads -rows none       # the workloads without the peers
//	go run ./test/bench -quick                           # a smoke test; its figures mean nothing
//	go run ./test/bench -markdown docs/performance.md    # and write the tables there
//
// It knows Sluice by its binary, its API and its resources only, except that the first two questions are about the
// placement engine alone.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/test/controlplane"
)

// options of a run. The zero value measures everything, and writes nothing.
type options struct {
	// quick measures as little as shows that everything works.
	quick bool
	// only are the names of the questions to answer; none means all.
	only []string
	// rows of the engine's tables to measure, and peers of the workloads; nil means all.
	rows *regexp.Regexp
	// markdown is the file whose figures are replaced.
	markdown string
}

// question is one thing to measure; its name is for -only.
type question struct {
	name   string
	answer func(context.Context, *bench) (table, error)
	engine bool // about the placement engine alone, without the binary
}

var questions = []question{
	{"decisions", measureDecisions, true},
	{"events", measureEvents, true},
	{"requests", measureRequests, false},
	{"catalog", measureCatalog, false},
	{"delivery", measureDelivery, false},
	{"clusters", measureClusters, false},
	{"workloads", measureWorkloads, false},
	{"restart", measureRestart, false},
	{"trust", measureTrust, false},
	{"made", measureMade, false},
	{"upstreams", measureUpstreams, false},
	{"market", measureMarket, false},
}

// bench holds the parts that every measurement uses.
type bench struct {
	options
	root     string                       // of the module
	folder   string                       // for everything that is written
	binary   string                       // Sluice
	progress io.Writer                    // says what is going on
	idle     []*controlplane.ControlPlane // member clusters of a quick run that the next question may have
}

func main() {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	var o options
	var only, rows string
	flag.BoolVar(&o.quick, "quick", false, "a smoke test of less than a minute; its figures mean nothing")
	flag.StringVar(&only, "only", "", "questions to answer, comma-separated: "+strings.Join(names(), ", "))
	flag.StringVar(&rows, "rows", "", "regular expression of the rows of "+strings.Join(names()[:2], " and ")+" that are measured, and of the peers (OCM, Karmada) that workloads are measured beside, default all")
	flag.StringVar(&o.markdown, "markdown", "", "file in which to replace the figures")
	flag.Parse()
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	if rows != "" {
		var err error
		if o.rows, err = regexp.Compile(rows); err != nil {
			fmt.Fprintln(os.Stderr, "bench: -rows:", err)
			os.Exit(2)
		}
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) // nothing is left to be done
	}
}

func names() []string {
	var all []string
	for _, q := range questions {
		all = append(all, q.name)
	}
	return all
}

// measures reports whether a row of the engine's tables, or a peer, is measured.
func (o options) measures(row string) bool { return o.rows == nil || o.rows.MatchString(row) }

// run answers the questions and prints the tables.
func run(ctx context.Context, o options, out, progress io.Writer) error {
	for _, name := range o.only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("no question is called %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	folder, err := os.MkdirTemp("", "sluice-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	b := &bench{options: o, folder: folder, binary: filepath.Join(folder, "sluice"), progress: progress}
	defer func() { stopAll(b.idle) }()
	report := "Measured " + time.Now().UTC().Format(time.DateOnly) + " on " + machine() + ".\n"
	asked := slices.DeleteFunc(slices.Clone(questions), func(q question) bool { return len(o.only) > 0 && !slices.Contains(o.only, q.name) })
	if slices.ContainsFunc(asked, func(q question) bool { return !q.engine }) {
		if err := b.build(ctx); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprint(out, report); err != nil {
		return err
	}
	for _, q := range asked {
		began := time.Now()
		b.say("%s", q.name)
		t, err := q.answer(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
		b.say("%s: done in %s", q.name, time.Since(began).Round(time.Second))
		text := "\n" + t.String()
		report += text
		if _, err := fmt.Fprint(out, text); err != nil {
			return err
		}
	}
	if o.markdown == "" {
		return nil
	}
	return replaceFigures(o.markdown, report)
}

// build makes the binary that is measured, as `make build` does.
func (b *bench) build(ctx context.Context) error {
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	b.root = filepath.Dir(strings.TrimSpace(string(module)))
	b.say("build sluice")
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", b.binary, "./cmd/sluice")
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build sluice: %w\n%s", err, out)
	}
	return nil
}

func (b *bench) say(format string, a ...any) {
	fmt.Fprintf(b.progress, "bench: "+format+"\n", a...)
}

// pick returns the first value, or the second one in a quick run.
func pick[T any](b *bench, normal, quick T) T {
	if b.quick {
		return quick
	}
	return normal
}
