package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement/replay"
)

// schedulability is the effect of cordon or uncordon on a cluster.
type schedulability struct {
	use, short, done string
	apply            func(*v1alpha1.MemberClusterSpec)
}

func newClusterScheduleCommand(hub *hubFlags, s schedulability) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use: s.use, Short: s.short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			cluster, err := schedule(cmd.Context(), c, hub.namespace, args[0], s.apply)
			if err != nil {
				return err
			}
			done := s.done
			if patience > 0 && awaitSeen(cmd.Context(), c, cluster, patience) != nil {
				done = fmt.Sprintf("%s, once Sluice sees it, which it has not in %s: is `sluice serve` running, and its leader well?", done, patience)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: %s\n", args[0], done)
			return err
		},
	}
	cmd.Flags().DurationVar(&patience, "wait", 15*time.Second, "how long to wait until new placements respect it; 0 does not wait")
	return cmd
}

// awaitSeen waits until the controller of member clusters has acted on the cluster's spec as it
// is now: from then on every placement goes by it.
func awaitSeen(ctx context.Context, c client.Client, cluster *v1alpha1.MemberCluster, patience time.Duration) error {
	want := cluster.Generation
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return false, err
		}
		ready := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && ready.ObservedGeneration >= want, nil
	})
}

// schedule changes a cluster's spec, and returns the cluster as it is afterwards.
func schedule(ctx context.Context, c client.Client, namespace, name string, change func(*v1alpha1.MemberClusterSpec)) (*v1alpha1.MemberCluster, error) {
	cluster := &v1alpha1.MemberCluster{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cluster); err != nil {
			return err
		}
		change(&cluster.Spec)
		return c.Update(ctx, cluster, client.FieldOwner(fieldOwner))
	})
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return cluster, nil
}

func newClusterDrainCommand(hub *hubFlags) *cobra.Command {
	var patience time.Duration
	var dryRun bool
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Move every instance off a member cluster, and stop new placements on it",
		Long: `Move every instance off a member cluster, and stop new placements on it. Each instance is delivered to another
cluster before it leaves this one; a few move at a time. Workloads with volumes are stopped
and move with their data if their plan has backups; if there are others, which cannot move, the command names
them and changes nothing. Instances that fit nowhere else, or whose plan tolerates the taint
sluice.dev/drain, stay; the command names them and waits. To interrupt the command stops only the waiting;
` + "`sluice cluster uncordon`" + ` stops the draining.

With --dry-run, nothing changes: the command shows to which clusters the instances would move now, and which would
stay, and why. Moves for which others would have to be displaced, or a cluster made, count as those of instances that
stay. -o wide shows the whole reasons.`,
		Example: `  sluice cluster drain eu-1 --dry-run
  sluice cluster drain eu-1
  sluice cluster drain eu-1 --wait 30m && sluice cluster remove eu-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			if dryRun {
				return showMoves(cmd, c, hub.namespace, args[0], false, &output)
			}
			if cmd.Flags().Changed("output") {
				return errors.New("--output: is for --dry-run, which prints a list")
			}
			if err := refusePinned(cmd.Context(), c, hub.namespace, args[0]); err != nil {
				return err
			}
			drain := func(spec *v1alpha1.MemberClusterSpec) { spec.Drain(metav1.Now()) }
			if _, err := schedule(cmd.Context(), c, hub.namespace, args[0], drain); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: draining\n", args[0])
			if patience == 0 {
				return nil
			}
			return awaitDrained(cmd.Context(), cmd.OutOrStdout(), c, hub.namespace, args[0], patience)
		},
	}
	cmd.Flags().DurationVar(&patience, "wait", time.Hour, "how long to wait until the cluster is empty; 0 does not wait")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show where the instances would move; change nothing")
	output.bind(cmd)
	return cmd
}

// showMoves prints what would happen to the instances on a cluster if it were drained, or lost.
func showMoves(cmd *cobra.Command, c client.Client, namespace, cluster string, lost bool, output *outputFlag) error {
	fleet, err := replay.ReadFleet(cmd.Context(), c, namespace)
	if err != nil {
		return err
	}
	plans, _, err := servedCatalog(cmd.Context(), c, namespace)
	if err != nil {
		return err
	}
	moves, _, err := fleet.Leave(cmd.Context(), plans, cluster, lost, time.Now())
	if err := cmp.Or(err, cmd.Context().Err()); err != nil {
		return err
	}
	t, stay := table{header: []string{"INSTANCE", "TO", "STAYS BECAUSE"}}, 0
	for _, m := range moves {
		t.rows = append(t.rows, []string{m.Instance, orDash(strings.Join(m.To, ",")), orDash(m.Why)})
		if m.Why != "" {
			stay++
		}
	}
	if !output.forPeople() {
		return output.print(cmd.OutOrStdout(), moves, t)
	}
	if len(moves) > 0 {
		if err := output.print(cmd.OutOrStdout(), moves, t); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "cluster %s: %s would move, %d would stay\n", cluster, count(len(moves)-stay, "instance"), stay)
	return err
}

func newClusterLossCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "loss NAME",
		Short: "Show what the loss of a member cluster would do",
		Long: `Show to which clusters the instances on a member cluster would move if it did not answer any more, and which would wait
for it or fit nowhere else, and why. It is as if the time had passed for which instances wait for a lost cluster, as
their plans say (300 seconds, if they do not). Components with volumes wait for the cluster, and the others of their
instance move. Nothing changes. Moves for which others would have to be displaced, or a cluster made, count as those of
instances that stay. -o wide shows the whole reasons.`,
		Example: `  sluice cluster loss eu-1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			return showMoves(cmd, c, hub.namespace, args[0], true, &output)
		},
	}
	output.bind(cmd)
	return cmd
}

// refusePinned refuses to drain a cluster with instances that cannot move, and names them.
func refusePinned(ctx context.Context, c client.Client, namespace, cluster string) error {
	var instances v1alpha1.ServiceInstanceList
	if err := c.List(ctx, &instances, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	pinned := v1alpha1.PinnedOn(instances.Items, cluster)
	if len(pinned) == 0 {
		return nil
	}
	return fmt.Errorf("cluster %s: %s with volumes there, whose data would be lost by a move: %s. Their consumers have to deprovision them first; until then `sluice cluster cordon %[1]s` stops new placements",
		cluster, count(len(pinned), "instance"), lists.Some(pinned, 10))
}

// awaitDrained reports the instances that remain on a cluster, whenever that changes, until
// there are none.
func awaitDrained(ctx context.Context, out io.Writer, c client.Client, namespace, cluster string, patience time.Duration) error {
	said, left := "", 0
	err := wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var instances v1alpha1.ServiceInstanceList
		if err := c.List(ctx, &instances, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		var state string
		state, left = drainState(instances.Items, cluster)
		if state != said {
			fmt.Fprintf(out, "cluster %s: %s\n", cluster, state)
			said = state
		}
		return left == 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("cluster %s: not empty after %s, %s left; draining continues", cluster, patience, count(left, "instance"))
	}
	return err
}

// drainState describes the instances that remain on a cluster, and counts them.
func drainState(instances []v1alpha1.ServiceInstance, cluster string) (state string, left int) {
	var moving, cleaning int
	var stranded []string
	for i := range instances {
		status := &instances[i].Status
		isOn := status.IsOn(cluster)
		isLeft := !isOn && slices.Contains(status.LeftClusters(), cluster)
		if !isLeft && !isOn {
			continue
		}
		left++
		switch {
		case isLeft:
			cleaning++
		case status.IsMoving():
			moving++
		case status.IsStranded():
			placed := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPlaced)
			stranded = append(stranded, fmt.Sprintf("%s (%s)", instances[i].Name, placed.Message))
		}
	}
	if left == 0 {
		return "empty", 0
	}
	state = fmt.Sprintf("%s left, %d moving, %d being removed", count(left, "instance"), moving, cleaning)
	if len(stranded) > 0 {
		const shown = 3
		state += fmt.Sprintf(", %d with nowhere to go: %s", len(stranded), strings.Join(stranded[:min(shown, len(stranded))], "; "))
	}
	return state, left
}
