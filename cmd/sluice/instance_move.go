package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/replay"
)

// relocation holds the arguments of `sluice instance move`.
type relocation struct {
	instance, platform, from string
	to                       []string
}

func newInstanceMoveCommand(hub *hubFlags) *cobra.Command {
	var r relocation
	var patience time.Duration
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "move INSTANCE",
		Short: "Move an instance to another cluster",
		Long: `Move an instance off a cluster, to the best other one or to one of those named with --to. It is decided as every
placement is, by the plan, the policies, quotas and free capacity; what cannot be placed there stays, and the command
says why. The instance is delivered to the new cluster before it leaves the old one, and its bindings follow; a
workload with volumes is stopped and moves with its data if its plan has backups. The instance is given by its OSB
instance id or by the name of its ServiceInstance.

With --dry-run, nothing changes. Rebalancing may move the instance again. To interrupt the command stops only the
waiting.`,
		Example: `  sluice instance move 5f1a2b3c --to us-1 --dry-run
  sluice instance move 5f1a2b3c --to us-1,us-2
  sluice instance move 5f1a2b3c --from eu-1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.instance = args[0]
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			instance, err := findInstance(cmd.Context(), c, hub.namespace, r.platform, r.instance)
			if err != nil {
				return err
			}
			to, err := r.judge(cmd.Context(), c, instance)
			if err != nil {
				return fmt.Errorf("instance %s: %w", r.instance, err)
			}
			if dryRun {
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "instance %s: it would move from %s to %s\n", r.instance, r.from, strings.Join(to, ", "))
				return err
			}
			if err := r.ask(cmd.Context(), c, instance); err != nil {
				return fmt.Errorf("instance %s: %w", r.instance, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "instance %s: moving from %s\n", r.instance, r.from)
			if patience == 0 {
				return nil
			}
			return r.await(cmd.Context(), cmd.OutOrStdout(), c, instance, patience)
		},
	}
	cmd.Flags().StringVar(&r.from, "from", "", "member cluster to leave (default: the one that the instance is on)")
	cmd.Flags().StringSliceVar(&r.to, "to", nil, "member clusters that it may come to (default: any)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show where the instance would move; change nothing")
	cmd.Flags().DurationVar(&patience, "wait", 10*time.Minute, "how long to wait until the instance has moved; 0 does not wait")
	bindPlatform(cmd, &r.platform)
	return cmd
}

// judge returns the clusters on which the instance would be afterwards. The error says why it stays.
func (r *relocation) judge(ctx context.Context, c client.Client, instance *v1alpha1.ServiceInstance) (to []string, err error) {
	on, err := restsOn(instance)
	switch {
	case err != nil:
		return nil, err
	case r.from == "" && len(on) > 1:
		return nil, fmt.Errorf("it is on %s: choose one with --from", strings.Join(on, ", "))
	case r.from == "":
		r.from = on[0]
	case !instance.Status.IsOn(r.from):
		return nil, fmt.Errorf("--from: it is not on %q, but on %s", r.from, strings.Join(on, ", "))
	}
	fleet, err := replay.ReadFleet(ctx, c, instance.Namespace)
	if err != nil {
		return nil, err
	}
	plans, _, err := servedCatalog(ctx, c, instance.Namespace)
	if err != nil {
		return nil, err
	}
	move, err := fleet.Move(plans, instance, r.from, r.to, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%w; `sluice cluster list` shows them all", err)
	}
	if move.Why != "" {
		return nil, fmt.Errorf("it stays on %s: %s", r.from, move.Why)
	}
	return move.To, nil
}

// ask writes the request to the instance as it was judged: if it has changed since, that is a conflict.
func (r *relocation) ask(ctx context.Context, c client.Client, instance *v1alpha1.ServiceInstance) error {
	before := client.MergeFromWithOptions(instance.DeepCopy(), client.MergeFromWithOptimisticLock{})
	metav1.SetMetaDataAnnotation(&instance.ObjectMeta, v1alpha1.AnnotationLeave, r.from)
	metav1.SetMetaDataAnnotation(&instance.ObjectMeta, v1alpha1.AnnotationMoveTo, strings.Join(r.to, ","))
	return c.Patch(ctx, instance, before, client.FieldOwner(fieldOwner))
}

// await waits until the instance has moved. The error says that it has not.
func (r *relocation) await(ctx context.Context, out io.Writer, c client.Client, instance *v1alpha1.ServiceInstance, patience time.Duration) error {
	var on []string
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(instance), instance); err != nil {
			return false, err
		}
		on = instance.Status.DeliveredDecision().Clusters()
		_, asked := instance.Annotations[v1alpha1.AnnotationLeave]
		return !asked && !instance.Status.IsMoving(), nil
	})
	switch {
	case wait.Interrupted(err) && ctx.Err() == nil:
		return fmt.Errorf("instance %s: it has not moved after %s, and goes on; `sluice instance describe %[1]s` shows how far it is", r.instance, patience)
	case err != nil:
		return fmt.Errorf("instance %s: %w", r.instance, err)
	case instance.Status.IsOn(r.from):
		return fmt.Errorf("instance %s: it stays on %s: there is no room for it elsewhere any more", r.instance, strings.Join(on, ", "))
	}
	_, err = fmt.Fprintf(out, "instance %s: it is on %s\n", r.instance, strings.Join(on, ", "))
	return err
}
