package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mostSums bounds a report.
const mostSums = 20_000

// ErrTooMany is the error about more sums than a query allows.
var ErrTooMany = errors.New("too many sums")

// Report is the usage that a query selects.
type Report struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Usage []*Sum    `json:"usage"`
}

// Reports makes reports one after the other, because each reads all instances, and callers have their turns in the order in
// which they came. It is safe for concurrent use.
type Reports struct {
	hub       client.Reader
	namespace string
	// turn holds one while a report is made.
	turn turn
	// callers' own turns: each has at most one report that is made or waits.
	callers sync.Map
}

type turn chan struct{}

// NewReports returns Reports of a namespace. The reader must be live.
func NewReports(hub client.Reader, namespace string) *Reports {
	return &Reports{hub: hub, namespace: namespace, turn: make(turn, 1)}
}

// Make returns the report of a query by a caller. The error contains ErrTooMany if the query has to be narrower.
func (r *Reports) Make(ctx context.Context, caller string, q Query) (*Report, error) {
	own, _ := r.callers.LoadOrStore(caller, make(turn, 1))
	for _, t := range []turn{own.(turn), r.turn} {
		select {
		case t <- struct{}{}:
			defer func() { <-t }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	read, err := Read(ctx, r.hub, r.namespace, q)
	if err != nil {
		return nil, fmt.Errorf("read the usage: %w", err)
	}
	sums, err := Sums(read, q)
	if err != nil {
		return nil, err
	}
	return &Report{q.From, q.To, sums}, nil
}

// ParseQuery reads a query for a report from parameters: month as YYYY-MM, by default the present one; per, by default a
// month; and by, several separated by commas, if there are dimensions to choose from. Other parameters are refused.
func ParseQuery(parameters url.Values, dimensions []Dimension, now time.Time) (Query, error) {
	known := []string{"month", "per"}
	if len(dimensions) > 0 {
		known = append(known, "by")
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		switch {
		case !slices.Contains(known, name):
			return Query{}, fmt.Errorf("%.64q: there is no such parameter; want some of %s", name, strings.Join(known, ", "))
		case len(parameters[name]) > 1:
			return Query{}, fmt.Errorf("%s: is given %d times", name, len(parameters[name]))
		}
	}
	q := Query{Per: PerMonth, Most: mostSums, Names: IDs}
	var err error
	if q.Window, err = ParseMonth(parameters.Get("month"), now); err != nil {
		return Query{}, err
	}
	if text := parameters.Get("per"); text != "" {
		if q.Per = Step(text); !slices.Contains(Steps, q.Per) {
			return Query{}, fmt.Errorf("per: %q is none of %s", text, joined(Steps))
		}
	}
	if text := parameters.Get("by"); text != "" {
		for part := range strings.SplitSeq(text, ",") {
			if !slices.Contains(dimensions, Dimension(part)) {
				return Query{}, fmt.Errorf("by: %q is none of %s", part, joined(dimensions))
			}
			q.By = append(q.By, Dimension(part))
		}
	}
	return q, nil
}

func joined[T ~string](all []T) string {
	text := make([]string, len(all))
	for i := range all {
		text[i] = string(all[i])
	}
	return strings.Join(text, ", ")
}
