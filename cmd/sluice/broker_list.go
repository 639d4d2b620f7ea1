package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/overview"
	"github.com/sluice-dev/sluice/placement"
)

func newBrokerListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the brokers: whether they take orders, how many plans they offer, and what was ordered there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			clusters, instances, err := readInventory(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			brokers := ofKind(clusters, overview.KindBroker)
			t := table{header: []string{"NAME", "READY", "ADMITTED", "PROVIDER", "REGION", "DEPTH", "PLANS", "GONE", "INSTANCES", "URL", "AGE"}, wide: []string{"PROVIDER", "DEPTH"}}
			for i := range brokers {
				b := &brokers[i]
				gone := 0
				if b.Status.Broker != nil {
					gone = len(b.Status.Broker.Vanished)
				}
				t.rows = append(t.rows, []string{
					b.Name, readiness(b), admission(b), orDash(b.Spec.Provider), orDash(b.Region()), depth(b), fmt.Sprint(len(plansOf(b))), fmt.Sprint(gone),
					fmt.Sprint(len(instancesAt(b.Name, instances))), b.Spec.Broker.URL, age(v1alpha1.CreatedOf(b)),
				})
			}
			return output.print(cmd.OutOrStdout(), brokers, t)
		},
	}
	output.bind(cmd)
	return cmd
}

func newBrokerDescribeCommand(hub *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME",
		Short: "Show a broker: the plans that may be ordered, what failed within an hour, and plans that have gone from its catalog; and its events",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			b, err := getAs(cmd.Context(), c, overview.KindBroker, client.ObjectKey{Namespace: hub.namespace, Name: args[0]})
			if err != nil {
				return err
			}
			ordered, err := orderedFrom(cmd.Context(), c, b)
			if err != nil {
				return err
			}
			d := newDetails(cmd.OutOrStdout())
			d.line("Name", "%s", b.Name)
			d.line("URL", "%s", b.Spec.Broker.URL)
			d.line("Ready", "%s", readiness(b))
			d.line("Provider", "%s", orDash(b.Spec.Provider))
			d.line("Region", "%s", orDash(b.Region()))
			d.line("Instances", "%d", len(ordered))
			describePlans(d, b)
			if err := describeSold(cmd.Context(), c, d, b); err != nil {
				return err
			}
			events, err := journal.Of(cmd.Context(), c, b)
			if err != nil {
				return err
			}
			describeEvents(d, events)
			return d.flush()
		},
	}
}

func describePlans(d *details, b *v1alpha1.MemberCluster) {
	status := b.Status.Broker
	if status == nil {
		d.line("Plans", "its catalog has not been read yet")
		return
	}
	d.line("Catalog", "%s, since %s", status.Digest, age(status.ChangedAt))
	describeSluice(d, status.Sluice)
	list(d, "Plans", status.Plans, func(p v1alpha1.OfferedPlan) string {
		return fmt.Sprintf("%s (%s, %s)", p.Name(), p.ServiceID, p.PlanID)
	})
	if status.LeftOut > 0 {
		d.line("Left out", "%s that may not be ordered (--allow, --deny), or are more than 2000", count(int(status.LeftOut), "plan"))
	}
	latestFirst := slices.Clone(status.Failures)
	slices.Reverse(latestFirst)
	list(d, "Failed", latestFirst, func(f v1alpha1.OrderFailure) string {
		return fmt.Sprintf("%s, %s ago, for %s/%s: %s", f.Plan, age(f.At), f.Platform, orDash(f.OrganizationGUID), f.Reason)
	})
	list(d, "Gone", status.Vanished, func(name string) string {
		return name + ": new orders are refused, instances go on"
	})
}

// describeSluice shows what a broker says beyond OSB, if it is a Sluice.
func describeSluice(d *details, s *v1alpha1.UpstreamSluice) {
	if s == nil {
		return
	}
	d.line("Sluice", "hub %s; orders come through %s at most", s.Hub, count(int(s.Depth), "Sluice"))
	list(d, "Behind", s.Plans, func(p v1alpha1.SluicePlan) string {
		return fmt.Sprintf("%s: the hubs %s", p.Plan, orDash(strings.Join(p.Hubs[1:], ", ")))
	})
	if s.MarketReadAt != nil {
		d.line("Market", "read %s ago", age(*s.MarketReadAt))
	}
	if s.MarketProblem != "" {
		d.line("Market", "%s; how many orders fit is not known", s.MarketProblem)
	}
	for _, p := range s.Plans {
		if p.Market != nil {
			d.line("", "%s: %s", p.Plan, describeMarket(p.Market))
		}
	}
	list(d, "Withheld", s.Withheld, func(p v1alpha1.WithheldPlan) string { return p.Plan + ": " + p.Reason })
}

// describeMarket says what a market says of a plan.
func describeMarket(m *v1alpha1.MarketPlan) string {
	text := "how many orders fit is not known there"
	switch {
	case m.Orders != nil && m.AtLeast:
		text = fmt.Sprintf("%s or more fit", count(int(*m.Orders), "order"))
	case m.Orders != nil && *m.Orders == 0:
		text = "no order fits"
	case m.Orders != nil:
		text = fmt.Sprintf("%s fit", count(int(*m.Orders), "order"))
	}
	if m.Orders != nil && *m.Orders > 0 {
		text += " on " + count(int(m.Clusters), "cluster")
	}
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	if m.Price != nil && m.Price.PerMonth != nil {
		text += fmt.Sprintf("; %s a month", placement.FormatMoney(*m.Price.PerMonth, m.Price.Currency))
	}
	for _, more := range []struct {
		what string
		list []string
	}{{"in", m.Regions}, {"the broker calls proven:", m.Proven}} {
		if len(more.list) > 0 {
			text += fmt.Sprintf("; %s %s", more.what, strings.Join(more.list, ", "))
		}
	}
	return text
}

// depth returns how many Sluices in a row a broker is; "-" if it is none.
func depth(b *v1alpha1.MemberCluster) string {
	if b.Status.Broker == nil || b.Status.Broker.Sluice == nil {
		return "-"
	}
	return fmt.Sprint(b.Status.Broker.Sluice.Depth)
}

// describeSold lists the plans of offerings that order from a broker, and whether they are withdrawn.
func describeSold(ctx context.Context, c client.Client, d *details, b *v1alpha1.MemberCluster) error {
	var offerings v1alpha1.ServiceOfferingList
	var clusters v1alpha1.MemberClusterList
	for _, all := range []client.ObjectList{&offerings, &clusters} {
		if err := c.List(ctx, all, client.InNamespace(b.Namespace)); err != nil {
			return fmt.Errorf("list what is sold: %w", err)
		}
	}
	var sold []string
	for i := range offerings.Items {
		accepted := offerings.Items[i].Status.Accepted
		if accepted == nil {
			continue
		}
		for k := range accepted.Plans {
			plan := &accepted.Plans[k]
			if plan.Upstream == nil {
				continue
			}
			at := slices.IndexFunc(plan.Upstream.Candidates, func(c v1alpha1.UpstreamCandidate) bool { return c.Broker == b.Name })
			if at < 0 {
				continue
			}
			line := fmt.Sprintf("%s/%s orders %s", accepted.Name, plan.Name, plan.Upstream.Candidates[at].Name())
			if catalog.IsWithdrawn(plan, clusters.Items) {
				line += "; " + withdrawn
			}
			sold = append(sold, line)
		}
	}
	list(d, "Sold as", sold, func(line string) string { return line })
	return nil
}

// withdrawn describes a plan of which no candidate is offered.
const withdrawn = "withdrawn: no broker offers it any more; new orders are refused, instances go on"

// plansOf returns the plans that may be ordered.
func plansOf(b *v1alpha1.MemberCluster) []v1alpha1.OfferedPlan {
	if b.Status.Broker == nil {
		return nil
	}
	return b.Status.Broker.Plans
}
