package main

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/internal/usage"
	"github.com/sluice-dev/sluice/selfdescription"
)

// usageFormat is the format of the output of `sluice usage`.
type usageFormat string

const (
	usageTable usageFormat = "table"
	usageCSV   usageFormat = "csv"
	usageJSON  usageFormat = "json"
	usageFOCUS usageFormat = "focus"
	usageJWT   usageFormat = "jwt"
)

func newUsageCommand(hub *hubFlags) *cobra.Command {
	var output usageFormat
	var signs signFlags
	var by []string
	var month, platform, provider, issuer string
	var per usage.Step
	dimensions := choice[usage.Dimension]{of: usage.Dimensions}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what instances had, and what it cost",
		Long: `Show what service instances had reserved where they were delivered, also those that are gone, for how long, and what
that cost at the prices of the decisions. An instance counts from the second at which it is delivered to the one at
which its deletion is asked for. On two clusters it counts twice; while it moves, only where it was.

CPU is in hours of a core and MEMORY in hours of a GiB; csv and json have all resources, in seconds. The output focus
is CSV with the columns of FOCUS 1.2 (https://focus.finops.org), with a row for each time during which an instance had
the same on one cluster; --by and --per do not go with it. The output jwt is what json has, signed by the broker's
present key; whoever has the broker's did.json verifies it with "sluice sd verify".`,
		Example: `  sluice usage --by organization,plan
  sluice usage --by instance --month 2026-10 --per day -o csv
  sluice usage --month 2026-10 -o focus --issuer "Example Cloud"
  sluice usage --by provider --month 2026-10 --provider acme -o jwt > acme-2026-10.jwt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			window, err := usage.ParseMonth(month, time.Now())
			if err != nil {
				return fmt.Errorf("--%w", err)
			}
			q := usage.Query{Window: window, Provider: provider, Platform: platform, Per: per}
			for _, text := range by {
				switch one := usage.Dimension(text); {
				case !slices.Contains(usage.Dimensions, one):
					return fmt.Errorf("--by %q: want %s", text, dimensions.list())
				case slices.Contains(q.By, one):
					return fmt.Errorf("--by: %s is there twice", text)
				default:
					q.By = append(q.By, one)
				}
			}
			if flags := cmd.Flags(); output == usageFOCUS && (flags.Changed("by") || flags.Changed("per")) {
				return errors.New("--by and --per do not go with -o focus, which has a row for each time during which an instance had the same on one cluster")
			}
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			plans, err := namePlans(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			q.Names = plans.split
			read, err := usage.Read(cmd.Context(), c, hub.namespace, q)
			if err != nil {
				return err
			}
			if len(read) == 0 && (platform != "" || provider != "") {
				fmt.Fprintf(cmd.ErrOrStderr(), "nothing was used%s%s in the month\n", ofNamed("platform", platform), ofNamed("provider", provider))
			}
			if output != usageJWT {
				return printUsage(cmd.OutOrStdout(), read, q, issuer, output)
			}
			sums, err := usage.Sums(read, q)
			if err != nil {
				return err
			}
			return signs.print(cmd, hub, c, selfdescription.StatementUsage, usage.Claims(q, sums))
		},
	}
	hub.bind(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&by, "by", []string{string(usage.ByPlan)}, "what is added up, several separated by commas: "+dimensions.list())
	flags.StringVar(&month, "month", "", "month as YYYY-MM, in UTC (default: the present one)")
	bindChoice(cmd, &per, "per", "", "length of the time that is added up", usage.Steps...)
	flags.StringVar(&platform, "platform", "", "platform that owns the instances (default: all)")
	flags.StringVar(&provider, "provider", "", "provider of the clusters (default: all)")
	flags.StringVar(&issuer, "issuer", "Sluice", "name of whoever sends the bills, for -o focus")
	bindChoice(cmd, &output, "output", "o", "output format", usageTable, usageCSV, usageJSON, usageFOCUS, usageJWT)
	signs.bind(cmd)
	return cmd
}

// ofNamed returns " of KIND NAME"; empty without a name.
func ofNamed(kind, name string) string {
	if name == "" {
		return ""
	}
	return " of " + kind + " " + strconv.Quote(name)
}

func printUsage(w io.Writer, read []usage.Metered, q usage.Query, issuer string, output usageFormat) error {
	if output == usageFOCUS {
		return usage.WriteFOCUS(w, read, q, issuer)
	}
	sums, err := usage.Sums(read, q)
	if err != nil {
		return err
	}
	switch output {
	case usageCSV:
		return usage.WriteCSV(w, sums, q.By)
	case usageJSON:
		return printJSON(w, sums)
	default:
		return writeUsageTable(w, sums, q)
	}
}

func writeUsageTable(w io.Writer, sums []*usage.Sum, q usage.Query) error {
	t := table{header: []string{"FROM", "TO"}}
	for _, title := range usage.Titles(q.By) {
		t.header = append(t.header, strings.ToUpper(title))
	}
	t.header = append(t.header, "HOURS", "CPU", "MEMORY", "COST")
	for _, s := range sums {
		row := []string{s.From.Format(time.DateTime), s.To.Format(time.DateTime)}
		for _, value := range s.Values(q.By) {
			row = append(row, orDash(value))
		}
		cost := "-"
		if s.Currency != "" {
			cost = s.Cost.String() + " " + s.Currency
		}
		t.rows = append(t.rows, append(row, hours(big.NewRat(s.Seconds, 1), 1),
			hours(s.Reserved[corev1.ResourceCPU].Rat(), 1), hours(s.Reserved[corev1.ResourceMemory].Rat(), 1<<30), cost))
	}
	return t.write(w, &outputFlag{})
}

// hours formats a number of seconds, each of so many units, in hours.
func hours(seconds *big.Rat, unit int64) string {
	return new(big.Rat).Quo(seconds, big.NewRat(3600*unit, 1)).FloatString(2)
}
