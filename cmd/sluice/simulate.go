package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/replay"
)

const outputCSV outputFormat = "csv"

func newSimulateCommand(hub *hubFlags) *cobra.Command {
	f := &simulateFlags{hub: hub}
	cmd := &cobra.Command{
		Use:   "simulate --orders FILE",
		Short: "Play an order book against a fleet: what is sold, refused, when and at what price",
		Long: `Play an order book against a fleet, without touching either: what is sold and where, what is refused and why,
when, and at what price. Placement decides as in a running Sluice, with the plans, policies, quotas, prices and
reservations of the fleet.

An order book is CSV; its first line names the columns:

  ` + strings.Join(replay.OrderColumns, ",") + `

Only plan is required. at says when it is ordered, and for how long it stays from when it is sold, as durations
(90m, 36h) from the beginning; without for it stays. count is a number of equal orders. parameters are JSON.
A file of ` + "`sluice place --record`" + ` is an order book too: of what every instance holds, and the recorded order.

The fleet is the hub's. With --fleet it is that of a recording, or one that is described: documents of the kinds
MemberCluster (what it has is status.allocatable), ServiceOffering and PlacementPolicy, in one file.

Clusters stay as they are: nothing fails, is displaced, moved or made.`,
		Example: `  sluice simulate --orders orders.csv
  sluice simulate --orders orders.csv --fleet fleet.yaml --wait 1h
  sluice simulate --orders decision.yaml --fleet larger.yaml
  sluice simulate --orders orders.csv -o csv > outcomes.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	hub.bind(cmd)
	f.output.bindFormats(cmd, outputTable, outputWide, outputCSV, outputJSON, outputYAML)
	flags := cmd.Flags()
	flags.StringVar(&f.orders, "orders", "", "file of the order book: CSV, or a recording; - is the standard input")
	flags.StringVar(&f.fleet, "fleet", "", "file of a recording or of a description, instead of the hub's fleet")
	flags.BoolVar(&f.empty, "empty", false, "begin with no instance on any cluster")
	flags.DurationVar(&f.wait, "wait", 0, "how long an order waits that does not fit, before it is refused")
	_ = cmd.MarkFlagRequired("orders")
	return cmd
}

type simulateFlags struct {
	hub           *hubFlags
	orders, fleet string
	empty         bool
	wait          time.Duration
	output        outputFlag
}

func (f *simulateFlags) run(cmd *cobra.Command) error {
	fleet, err := f.readFleet(cmd)
	if err != nil {
		return err
	}
	if f.empty {
		fleet.Instances = nil
	}
	orders, err := readSimulated(cmd, "--orders", f.orders, (*replay.Recording).Orders, func(book []byte) ([]replay.Booked, error) { return replay.ParseOrders(book, math.MaxInt) })
	if err != nil {
		return err
	}
	if f.wait < 0 {
		return fmt.Errorf("--wait: %s is negative", f.wait)
	}
	simulation, err := fleet.Play(orders, f.wait, time.Now())
	if err != nil {
		return err
	}
	out, rows := cmd.OutOrStdout(), outcomeTable(simulation)
	switch {
	case f.output.format == outputCSV:
		return writeCSV(out, rows)
	case !f.output.forPeople():
		return f.output.print(out, simulation, table{})
	}
	if err := f.output.print(out, simulation, rows); err != nil {
		return err
	}
	_, err = fmt.Fprint(out, "\n", summary(simulation))
	return err
}

// readFleet reads the fleet from a file, or from the hub.
func (f *simulateFlags) readFleet(cmd *cobra.Command) (*replay.Fleet, error) {
	if f.fleet == "" {
		c, err := f.hub.client(cmd)
		if err != nil {
			return nil, err
		}
		return replay.ReadFleet(cmd.Context(), c, f.hub.namespace)
	}
	return readSimulated(cmd, "--fleet", f.fleet, (*replay.Recording).Fleet, replay.ParseFleet)
}

// readSimulated reads a part of a simulation from the file of a flag: of a recording, or else as parse does.
func readSimulated[T any](cmd *cobra.Command, flag, file string, of func(*replay.Recording) T, parse func([]byte) (T, error)) (part T, err error) {
	data, err := readInput(cmd, file)
	if err != nil {
		return part, err
	}
	if !replay.IsRecording(data) {
		part, err = parse(data)
	} else if recording, readErr := replay.ReadRecording(data); readErr != nil {
		err = readErr
	} else {
		part = of(recording)
	}
	if err != nil {
		return part, fmt.Errorf("%s: %w", flag, err)
	}
	return part, nil
}

// outcomeTable has a row for each order.
func outcomeTable(s *replay.Simulation) table {
	t := table{header: []string{"ORDER", "AT", "PLAN", "OUTCOME", "WAITED", "CLUSTERS", "PRICE", "WHY"}}
	for i := range s.Outcomes {
		o := &s.Outcomes[i]
		outcome, waited := o.Reason, "-"
		if o.Sold {
			outcome, waited = "Sold", (o.Since - o.At).String()
		}
		price := "-"
		if len(o.Prices) > 0 {
			price = money(o.Prices, "/h")
		}
		t.rows = append(t.rows, []string{
			o.ID, o.At.String(), orDash(o.Plan), outcome, waited, orDash(strings.Join(o.Clusters, ",")), price, orDash(o.Why),
		})
	}
	return t
}

// summary counts what was sold and refused.
func summary(s *replay.Simulation) string {
	sold, later, refused := 0, 0, map[string]int{}
	for i := range s.Outcomes {
		switch o := &s.Outcomes[i]; {
		case !o.Sold:
			refused[o.Reason]++
		default:
			sold++
			if o.Since > o.At {
				later++
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sold: %d of %s, %d of them after waiting\n", sold, count(len(s.Outcomes), "order"), later)
	if len(refused) > 0 {
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(refused)) {
			reasons = append(reasons, fmt.Sprintf("%d %s", refused[reason], reason))
		}
		fmt.Fprintf(&b, "refused: %s\n", strings.Join(reasons, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Most)) {
		peak := s.Most[name]
		fmt.Fprintf(&b, "most %s reserved: %s %% of all, at %s\n", name, strconv.FormatFloat(float64(peak.PerMille)/10, 'f', 1, 64), peak.At)
	}
	if len(s.Revenue) > 0 {
		fmt.Fprintf(&b, "price of what was sold, until %s: %s\n", s.Ended, money(s.Revenue, ""))
	}
	return b.String()
}

// money formats amounts in billionths, by currency.
func money(amounts map[string]int64, per string) string {
	var parts []string
	for _, currency := range slices.Sorted(maps.Keys(amounts)) {
		parts = append(parts, placement.FormatMoney(*resource.NewScaledQuantity(amounts[currency], resource.Nano), currency)+per)
	}
	return strings.Join(parts, " + ")
}

// writeCSV writes a table as CSV (RFC 4180), with names of columns in lower case.
func writeCSV(w io.Writer, t table) error {
	lines := csv.NewWriter(w)
	header := make([]string, len(t.header))
	for i, title := range t.header {
		header[i] = strings.ToLower(title)
	}
	return lines.WriteAll(append([][]string{header}, t.rows...))
}
