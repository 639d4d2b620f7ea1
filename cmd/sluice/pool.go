package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/overview"
)

func newPoolCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Manage pools, which sell several member clusters as one",
		Long: `Manage pools. A pool sells several member clusters, mostly of small providers, as one: with a name, a provider, a
region, labels and prices of its own. Consumers read these only, never which members their instances are on.

Plans with the peering role Opaque are ordered from pools. For each order of a consumer, the pool orders an instance of
the same plan for itself, which is placed on members and delivered by way of the pool's front.`,
	}
	hub.bind(cmd)
	cmd.AddCommand(newPoolAddCommand(hub), newPoolListCommand(hub), newPoolDescribeCommand(hub),
		newStandInRemoveCommand(hub, overview.KindPool, "Deprovision them first, or move them to other pools with `sluice cluster drain`"))
	return cmd
}

// poolAddFlags describe the pool to add.
type poolAddFlags struct {
	clusterAddFlags
	front, members string
}

func newPoolAddCommand(hub *hubFlags) *cobra.Command {
	f := &poolAddFlags{clusterAddFlags: clusterAddFlags{driver: v1alpha1.DriverPool}}
	cmd := &cobra.Command{
		Use:   "add NAME --front HUB --members SELECTOR",
		Short: "Register a pool, or change its description",
		Long: `Register a pool: member clusters that are sold as one, under the pool's name.

The members are the clusters with the driver liqo whose labels match --members, apart from hubs and consumers' own; they
change with the labels. A selector is written as for "kubectl -l". Beside their own labels, clusters have
topology.kubernetes.io/region, topology.kubernetes.io/zone, sluice.dev/provider, sluice.dev/tier and sluice.dev/cluster.
The front is the hub through which the pool's instances are reached ("sluice cluster add --driver liqo --hub").

A pool has what its members sell; --sell and --hide hold some of that back. In the inventory it is a member cluster with
the driver pool: policies, labels, taints and prices apply to it as to clusters, and "sluice cluster cordon" and "drain"
work. Consumers read the name of the pool, and its description, instead of those of its members. Only what has to be
proven, its members and its front prove.

Its members are sold by themselves, too, and by other pools that select them. A cluster with the taint
sluice.dev/pool=NAME:NoSchedule is sold by the pool NAME only.

If the pool is registered already, only the given flags change it.`,
		Example: `  sluice cluster add front --context kind-front --driver liqo --hub
  sluice cluster add small-1 --context kind-small-1 --driver liqo --label pool=eu --taint sluice.dev/pool=eu-pool:NoSchedule
  sluice pool add eu-pool --front front --members pool=eu --provider market --region eu --price cpu=0.04,memory=0.005
  sluice pool add alps --front front --members 'topology.kubernetes.io/region in (ch,at),sluice.dev/tier!=edge'
  sluice pool add eu-pool --sell share=80`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.addAs(cmd, hub, overview.KindPool, args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.front, "front", "", "member cluster that is the hub of the pool's peerings")
	flags.StringVar(&f.members, "members", "", "labels of the member clusters, for instance pool=eu,disk in (ssd,nvme)")
	f.bindDescription(cmd)
	f.bindSale(cmd)
	flags.DurationVar(&f.wait, "wait", time.Minute, "how long to wait until the pool is ready; 0 does not wait")
	return cmd
}

// describeOwn implements standIn.
func (f *poolAddFlags) describeOwn(cluster *v1alpha1.MemberCluster, given given) (err error) {
	if cluster.Spec.Pool == nil {
		if f.front == "" {
			err = errors.New("--front: is missing: name a hub, which `sluice cluster add --driver liqo --hub` adds")
		}
		if f.members == "" {
			err = errors.Join(err, errors.New("--members: is missing: select member clusters by their labels, for instance pool=eu"))
		}
		cluster.Spec.Pool = &v1alpha1.ClusterPool{}
	}
	if given("front") {
		cluster.Spec.Pool.Front = f.front
	}
	if given("members") {
		members, unreadable := parseSelector(f.members)
		if unreadable != nil {
			err = errors.Join(err, fmt.Errorf("--members %q: %w", f.members, unreadable))
		}
		cluster.Spec.Pool.Members = members
	}
	return err
}

// prepare implements standIn: it checks the front.
func (f *poolAddFlags) prepare(ctx context.Context, c client.Client, hub *hubFlags, _ *v1alpha1.MemberCluster, given given) error {
	if !given("front") {
		return nil
	}
	front := &v1alpha1.MemberCluster{}
	err := c.Get(ctx, client.ObjectKey{Namespace: hub.namespace, Name: f.front}, front)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("--front %s: %w", f.front, err)
	}
	if problem := frontProblem(front); problem != "" {
		return fmt.Errorf("--front %s: %s", f.front, problem)
	}
	return nil
}

// frontProblem returns why a member cluster is no front of a pool, with a remedy; empty if it can be. The cluster has no UID if
// there is none of the name.
func frontProblem(front *v1alpha1.MemberCluster) string {
	switch {
	case front.UID == "":
		return "it is not in the inventory: `sluice cluster add --driver liqo --hub` adds it"
	case front.Spec.Liqo == nil || !front.Spec.Liqo.Hub:
		return "it is no hub: `sluice cluster add --driver liqo --hub` makes a cluster one"
	}
	return ""
}

// offers implements standIn.
func (f *poolAddFlags) offers(ctx context.Context, c client.Client, pool *v1alpha1.MemberCluster) (string, error) {
	clusters, instances, err := readInventory(ctx, c, pool.Namespace)
	if err != nil {
		return "", err
	}
	_, open, members, _ := inventoryOf(clusters, instances).Pooled(pool.Name)
	if open == members {
		return count(members, "member"), nil
	}
	return fmt.Sprintf("%d of %s take orders", open, count(members, "member")), nil
}

// parseSelector parses a label selector as kubectl does. (metav1.ParseToLabelSelector refuses "!=", and takes the last of two
// values that a label is to have.)
func parseSelector(text string) (parsed metav1.LabelSelector, err error) {
	requirements, err := labels.ParseToRequirements(text)
	if err != nil {
		return parsed, err
	}
	if len(requirements) == 0 {
		return parsed, errors.New("it selects by no label")
	}
	for _, r := range requirements {
		key, values := r.Key(), r.Values().List()
		var operator metav1.LabelSelectorOperator
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals:
			if _, twice := parsed.MatchLabels[key]; !twice {
				metav1.AddLabelToSelector(&parsed, key, values[0])
				continue
			}
			operator = metav1.LabelSelectorOpIn
		case selection.In:
			operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			operator = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			operator = metav1.LabelSelectorOpDoesNotExist
		default:
			return parsed, fmt.Errorf("%s: labels are not compared by size", r.String())
		}
		parsed.MatchExpressions = append(parsed.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values})
	}
	return parsed, nil
}
