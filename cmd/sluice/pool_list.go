package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/overview"
	"github.com/sluice-dev/sluice/placement"
)

func newPoolListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the pools: whether they take orders, their members, what these have, what is reserved and what is free",
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
			return output.print(cmd.OutOrStdout(), ofKind(clusters, overview.KindPool), poolTable(clusters, instances))
		},
	}
	output.bind(cmd)
	return cmd
}

// poolTable shows the pools among clusters, with the reservations of consumers' instances on them.
func poolTable(clusters []v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance) table {
	snapshot := inventoryOf(clusters, instances)
	t := table{
		header: slices.Concat([]string{"NAME", "READY", "ADMITTED", "PROVIDER", "REGION", "FRONT", "MEMBERS"}, amountColumns, []string{"INSTANCES", "AGE"}),
		wide:   append([]string{"PROVIDER"}, wideAmounts...),
	}
	for _, p := range ofKind(clusters, overview.KindPool) {
		_, open, all, _ := snapshot.Pooled(p.Name)
		members := fmt.Sprint(all)
		if open < all {
			members = fmt.Sprintf("%d of %d", open, all)
		}
		t.rows = append(t.rows, slices.Concat(
			[]string{p.Name, readiness(&p), admission(&p), orDash(p.Spec.Provider), orDash(p.Region()), p.Spec.Pool.Front, members},
			amountsOf(&p, snapshot), []string{fmt.Sprint(len(instancesAt(p.Name, instances))), age(v1alpha1.CreatedOf(&p))},
		))
	}
	return t
}

func newPoolDescribeCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "describe NAME",
		Short: "Show a pool: its front, its members and what each sells, the instances on it with its own orders, and its events",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			pool, err := getAs(cmd.Context(), c, overview.KindPool, client.ObjectKey{Namespace: hub.namespace, Name: args[0]})
			if err != nil {
				return err
			}
			if !output.forPeople() {
				return output.print(cmd.OutOrStdout(), *pool, table{})
			}
			clusters, instances, err := readInventory(cmd.Context(), c, hub.namespace)
			if err != nil {
				return err
			}
			events, err := journal.Of(cmd.Context(), c, pool)
			if err != nil {
				return fmt.Errorf("read the journal: %w", err)
			}
			return describePool(cmd.OutOrStdout(), pool, clusters, instances, events)
		},
	}
	output.bind(cmd)
	return cmd
}

// describePool prints what is known of a pool and its members, what is on it, and its events.
func describePool(w io.Writer, pool *v1alpha1.MemberCluster, clusters []v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance, events []v1alpha1.Event) error {
	front := &v1alpha1.MemberCluster{}
	if i := slices.IndexFunc(clusters, func(c v1alpha1.MemberCluster) bool { return c.Name == pool.Spec.Pool.Front }); i >= 0 {
		front = &clusters[i]
	}
	d := newDetails(w)
	d.line("Pool", "%s", pool.Name)
	d.line("Front", "%s: %s", pool.Spec.Pool.Front, cmp.Or(frontProblem(front), readiness(front)))
	d.line("Selects", "%s", metav1.FormatLabelSelector(&pool.Spec.Pool.Members))
	describeSupply(d, pool, instances)
	members := membersOf(pool, clusters, instances)
	d.line("Members", "%d", len(members))
	for _, m := range members {
		m.describe(d)
	}
	orders := ordersOn(pool.Name, instances)
	d.line("Instances", "%d", len(orders))
	list(d, "", orders, func(text string) string { return text })
	describeEvents(d, events)
	return d.flush()
}

// poolMember is a member of a pool.
type poolMember struct {
	*v1alpha1.MemberCluster
	// takesOrders reports whether the pool can place something on it.
	takesOrders bool
	// sells is the amount that it sells, and the part of it that others than the pool use.
	sells placement.Fleet
}

// membersOf returns the members of a pool. What is a member, and what it sells, is decided by placement, which is given an
// inventory of the pool and one cluster.
func membersOf(pool *v1alpha1.MemberCluster, clusters []v1alpha1.MemberCluster, instances []v1alpha1.ServiceInstance) (members []poolMember) {
	on := map[string][]v1alpha1.ServiceInstance{}
	for i := range instances {
		for cluster := range placement.Ledger(&instances[i].Status) {
			on[cluster] = append(on[cluster], instances[i])
		}
	}
	for i := range clusters {
		c := &clusters[i]
		sells, open, is, _ := inventoryOf([]v1alpha1.MemberCluster{*pool, *c}, on[c.Name]).Pooled(pool.Name)
		if is > 0 {
			members = append(members, poolMember{c, open > 0, sells})
		}
	}
	return members
}

// describe prints the member: whether it is ready, what it has and what it sells.
func (m *poolMember) describe(d *details) {
	text := fmt.Sprintf("%s of %s in %s: %s", m.Name, orDash(m.Spec.Provider), orDash(m.Region()), readiness(m.MemberCluster))
	if m.Spec.Trust != nil {
		text += ", admitted " + admission(m.MemberCluster)
	}
	for _, taint := range m.Spec.Taints {
		text += ", taint " + taint.ToString()
	}
	d.line("", "%s", text)
	d.line("", "  has %s", coresAndMemory(m.Status.Allocatable))
	if !m.takesOrders {
		d.line("", "  takes no orders of the pool")
		return
	}
	text = "  sells " + coresAndMemory(m.sells.Sold.List())
	if used := coresAndMemory(m.sells.Used.List()); used != "-" {
		text += ", of which others use " + used
	}
	d.line("", "%s", text)
}

// coresAndMemory prints these two of a list of resources; "-" if it has neither.
func coresAndMemory(of corev1.ResourceList) string {
	return quantities(corev1.ResourceList{corev1.ResourceCPU: *of.Cpu(), corev1.ResourceMemory: *of.Memory()})
}

// ordersOn describes the instances that are on a pool, or have left something there, and what the pool has ordered for them.
func ordersOn(pool string, instances []v1alpha1.ServiceInstance) (orders []string) {
	for i := range instances {
		outer := &instances[i]
		if !hasAnythingAt(pool, outer) {
			continue
		}
		text, name := outer.Name+" ("+outer.Spec.Platform+"/"+outer.Spec.InstanceID+"): ", v1alpha1.PoolInstanceName(pool, outer.Name)
		at := slices.IndexFunc(instances, func(i v1alpha1.ServiceInstance) bool { return i.Name == name })
		switch {
		case at < 0:
			text += "the pool has no order for it"
		case len(instances[at].Status.Decision.Clusters()) == 0:
			text += "the pool's order " + name + " is on no member"
		default:
			text += "the pool's order " + name + " is on " + strings.Join(instances[at].Status.Decision.Clusters(), ", ")
		}
		orders = append(orders, text)
	}
	return orders
}
