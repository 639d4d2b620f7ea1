package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/rebalance"
)

func newRebalanceCommand(hub *hubFlags) *cobra.Command {
	var leastGain int32
	var most int
	var apply bool
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "rebalance",
		Short: "Propose moves of instances to better clusters, or carry them out",
		Long: `Propose moves of instances to the clusters where they would be placed today, each with its gain in points of
score and its price. Nothing moves without --apply; with it, each instance is delivered to the new cluster before
it leaves the old one. A placement policy with a rebalance section does the same automatically, in time windows.`,
		Example: `  sluice rebalance
  sluice rebalance --least-gain 30 --at-most 5 --apply`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			served, _, err := servedCatalog(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			proposals, err := rebalance.Proposals(cmd.Context(), c, hub.namespace, served, time.Now(), leastGain, most,
				func(*v1alpha1.ServiceInstance) bool { return true })
			if err != nil {
				return err
			}
			if len(proposals) == 0 && output.forPeople() {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "no move gains %d points or more\n", leastGain)
				return err
			}
			if err := output.print(cmd.OutOrStdout(), proposals, proposalTable(proposals)); err != nil || !apply {
				return err
			}
			for _, p := range proposals {
				if err := rebalance.Apply(cmd.Context(), c, hub.namespace, p); err != nil {
					return err
				}
			}
			if !output.forPeople() {
				return nil
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "moving: %s; `sluice instance list` shows where they are\n", count(len(proposals), "instance"))
			return err
		},
	}
	hub.bind(cmd)
	output.bind(cmd)
	cmd.Flags().Int32Var(&leastGain, "least-gain", 20, "points of score that a move must gain")
	cmd.Flags().IntVar(&most, "at-most", 20, "how many moves to propose")
	cmd.Flags().BoolVar(&apply, "apply", false, "carry out the moves")
	return cmd
}

func proposalTable(proposals []placement.Proposal) table {
	t := table{header: []string{"INSTANCE", "FROM", "TO", "SCORE", "GAIN", "COST", "NEW COST"}}
	price := func(p *placement.Price) string {
		if p == nil {
			return "-"
		}
		return p.String()
	}
	for _, p := range proposals {
		t.rows = append(t.rows, []string{
			p.Instance, strings.Join(p.From, ","), strings.Join(p.To, ","),
			strconv.Itoa(int(p.Score)), fmt.Sprintf("+%d", p.Gain), price(p.Price), price(p.NewPrice),
		})
	}
	return t
}
