package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A trace is two files of comma-separated values (RFC 4180), each with a line of column names:
//
//   - nodes: cpu in cores, memory in GiB, and for each other resource a column with its name; all may have
//     fractions. A column cluster puts nodes with the same value into one cluster; without it, each node is
//     a cluster.
//   - tasks: the same columns of resources; an absent or empty one means none. A column arrive, in any unit
//     of time, sorts them; leave, in the same unit, is when one ends (empty means never).
//
// Other columns are ignored if they are called name, or start with "x-"; any other column is a resource.
// Without arrive, each seed draws tasks at random until they ask for a percentage of the scarcest resource.
type trace struct {
	workload
	timed bool
}

// table is a file by columns.
type table struct {
	file    string
	columns []string
	rows    [][]string
}

func readTable(file string) (t table, err error) {
	f, err := os.Open(file)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := csv.NewReader(f)
	r.TrimLeadingSpace = true
	if t.columns, err = r.Read(); err != nil {
		return t, fmt.Errorf("%s: the line of column names: %w", file, err)
	}
	t.file = file
	for i := range t.columns {
		t.columns[i] = strings.TrimSpace(strings.TrimPrefix(t.columns[i], "\ufeff"))
	}
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return t, fmt.Errorf("%s: %w", file, err)
		}
		t.rows = append(t.rows, row)
	}
}

// number returns a field; 0 if it is empty or the column is absent.
func (t table) number(row int, column string) (float64, error) {
	i := slices.Index(t.columns, column)
	if i < 0 || strings.TrimSpace(t.rows[row][i]) == "" {
		return 0, nil
	}
	number, err := strconv.ParseFloat(strings.TrimSpace(t.rows[row][i]), 64)
	if err != nil || number < 0 || math.IsInf(number, 0) || math.IsNaN(number) {
		return 0, fmt.Errorf("%s: line %d: %s: %q is not a number from 0", t.file, row+2, column, t.rows[row][i])
	}
	return number, nil
}

// others returns the columns of further resources.
func (t table) others() (others []string) {
	for _, column := range t.columns {
		switch column {
		case "name", "cpu", "memory", "cluster", "arrive", "leave":
		default:
			if !strings.HasPrefix(column, "x-") {
				others = append(others, column)
			}
		}
	}
	return others
}

// amounts returns the resources of a row: thousandths, and of memory MiB.
func (t table) amounts(row int, others []string) (of amounts, err error) {
	for i, column := range append([]string{"cpu", "memory"}, others...) {
		number, err := t.number(row, column)
		if err != nil {
			return nil, err
		}
		scale := 1000.0
		if i == memory {
			scale = 1024
		}
		of = append(of, int64(math.Round(number*scale)))
	}
	return of, nil
}

// readTrace reads both files.
func readTrace(nodesFile, tasksFile string) (t trace, err error) {
	nodes, err := readTable(nodesFile)
	if err != nil {
		return t, err
	}
	tasks, err := readTable(tasksFile)
	if err != nil {
		return t, err
	}
	others := nodes.others()
	for _, column := range tasks.others() {
		if !slices.Contains(others, column) {
			return t, fmt.Errorf("%s: column %s: %s has no such resource", tasksFile, column, nodesFile)
		}
	}
	t.resources = slices.Clone(common)
	for _, column := range others {
		if !strings.Contains(column, "/") {
			column = "example.com/" + column
		}
		t.resources = append(t.resources, corev1.ResourceName(column))
	}
	if t.fleet, err = nodes.fleet(others); err != nil {
		return t, err
	}
	t.timed = slices.Contains(tasks.columns, "arrive")
	if t.requests, err = tasks.requests(others); err != nil {
		return t, err
	}
	if len(t.fleet) == 0 || len(t.requests) == 0 {
		return t, fmt.Errorf("%d clusters and %d tasks: there is nothing to play", len(t.fleet), len(t.requests))
	}
	return t, nil
}

func (t table) fleet(others []string) (fleet []cluster, err error) {
	known, column := map[string]int{}, slices.Index(t.columns, "cluster")
	for row := range t.rows {
		has, err := t.amounts(row, others)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("node-%06d", row)
		if column >= 0 {
			name = t.rows[row][column]
		}
		at, exists := known[name]
		if !exists {
			at, known[name] = len(fleet), len(fleet)
			fleet = append(fleet, cluster{name: name, has: make(amounts, len(has)), used: make(amounts, len(has))})
		}
		for i, amount := range has {
			fleet[at].has[i] += amount
		}
	}
	return fleet, nil
}

// requests returns the tasks in the order in which they arrive.
func (t table) requests(others []string) ([]request, error) {
	type timed struct {
		request
		arrives, leaves float64
	}
	var all []timed
	for row := range t.rows {
		one := timed{request: request{id: fmt.Sprintf("task-%06d", row)}}
		var errs [3]error
		one.asks, errs[0] = t.amounts(row, others)
		one.arrives, errs[1] = t.number(row, "arrive")
		one.leaves, errs[2] = t.number(row, "leave")
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(a.arrives, b.arrives) })
	requests := make([]request, len(all))
	for i, one := range all {
		requests[i] = one.request
		requests[i].arrive = i
		if one.leaves > 0 { // before the first that arrives then or later, but not before it came itself
			at, _ := slices.BinarySearchFunc(all, one.leaves, func(other timed, leaves float64) int { return cmp.Compare(other.arrives, leaves) })
			requests[i].leave = max(at, i+1)
		}
	}
	return requests, nil
}

// of returns the workload for a seed: the tasks as they came or, without times, drawn at random.
func (t trace) of(seed uint64, percent int64) workload {
	if t.timed {
		return t.workload
	}
	random, drawn := seeded(300+seed), workload{resources: t.resources, fleet: t.fleet}
	return drawn.until(percent, func() amounts { return t.requests[random.IntN(len(t.requests))].asks })
}
