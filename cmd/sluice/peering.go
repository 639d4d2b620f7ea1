package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/liqo"
)

func newPeeringCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peering",
		Short: "Peerings of member clusters by Liqo, and clusters that join by invitation",
		Long: `Peerings of member clusters by Liqo.

Sluice peers clusters by itself when an instance needs it, with the rights that "sluice cluster add --driver liqo" gave
it on both. A provider or a consumer that gives no such rights joins by invitation instead:

  operator   sluice peering invite theirs --cluster-id their-liqo-id --with our-hub > invitation.yaml
  owner      sluice peering accept invitation.yaml --context theirs > answer.yaml
  operator   sluice peering join answer.yaml

and leaves again by "sluice peering withdraw" (operator) and "sluice peering leave" (owner).`,
	}
	onHub := []*cobra.Command{
		newPeeringListCommand(hub), newPeeringAddCommand(hub), newPeeringRemoveCommand(hub),
		newPeeringInviteCommand(hub), newPeeringJoinCommand(hub), newPeeringWithdrawCommand(hub),
	}
	hub.bind(cmd)
	cmd.AddCommand(onHub...)
	cmd.AddCommand(newPeeringAcceptCommand(), newPeeringLeaveCommand())
	return cmd
}

func newPeeringListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List peerings, and what the unready ones wait for",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var list v1alpha1.PeeringList
			if err := c.List(cmd.Context(), &list, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list peerings: %w", err)
			}
			t := table{header: []string{"CONSUMER", "PROVIDER", "NETWORKED", "AUTHENTICATED", "READY", "WHY"}}
			for i := range list.Items {
				p := &list.Items[i]
				row := []string{p.Spec.Consumer, p.Spec.Provider}
				for _, kind := range []string{v1alpha1.ConditionNetworked, v1alpha1.ConditionAuthenticated, v1alpha1.ConditionReady} {
					row = append(row, truth(viewCondition(p.Status.Conditions, kind)))
				}
				message := ""
				if ready := viewCondition(p.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
					message = ready.message
				}
				t.rows = append(t.rows, append(row, orDash(message)))
			}
			return output.print(cmd.OutOrStdout(), list.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

// truth returns a condition's status as one word.
func truth(c *conditionView) string {
	switch {
	case c == nil:
		return "-"
	case c.isTrue:
		return "yes"
	}
	return "no"
}

func newPeeringAddCommand(hub *hubFlags) *cobra.Command {
	var networkOnly bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "add CONSUMER PROVIDER",
		Short: "Peer two member clusters before an instance needs it, and keep them peered",
		Long: `Peer two member clusters before an instance needs it, and keep them peered.

The first instance that needs the peering then does not wait for it.`,
		Example: "  sluice peering add their-cluster eu-3",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			peering := newPeering(hub, args[0], args[1])
			peering.Spec.Modules, peering.Spec.Kept = v1alpha1.ModulesFor(!networkOnly), true
			if err := apply(cmd.Context(), c, peering); err != nil {
				return fmt.Errorf("peer %s with %s: %w", args[0], args[1], err)
			}
			return awaitPeering(cmd, c, peering, patience, func() bool { return false })
		},
	}
	cmd.Flags().BoolVar(&networkOnly, "network-only", false, "connect only the networks, without virtual nodes")
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait until they are peered; 0 does not wait")
	return cmd
}

func newPeering(hub *hubFlags, consumer, provider string) *v1alpha1.Peering {
	return &v1alpha1.Peering{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Peering"},
		ObjectMeta: metav1.ObjectMeta{Namespace: hub.namespace, Name: v1alpha1.PeeringName(consumer, provider)},
		Spec:       v1alpha1.PeeringSpec{Consumer: consumer, Provider: provider},
	}
}

// awaitPeering waits until a peering is ready or enough returns true, and prints on stderr
// what it waits for.
func awaitPeering(cmd *cobra.Command, c client.Client, peering *v1alpha1.Peering, patience time.Duration, enough func() bool) error {
	if patience == 0 {
		return nil
	}
	who, told := peering.Spec.Consumer+" and "+peering.Spec.Provider, ""
	err := wait.PollUntilContextTimeout(cmd.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(peering), peering); err != nil {
			return false, err
		}
		if enough() {
			return true, nil
		}
		ready := viewCondition(peering.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.generation < peering.Generation {
			return false, nil
		}
		if !ready.isTrue && ready.message != told {
			told = ready.message
			fmt.Fprintf(cmd.ErrOrStderr(), "peering of %s: %s\n", who, told)
		}
		return ready.isTrue, nil
	})
	if wait.Interrupted(err) {
		if told == "" {
			told = "no controller has looked at it: is `sluice serve` running?"
		}
		return fmt.Errorf("peering of %s: not ready after %s: %s", who, patience, told)
	}
	if err == nil && !enough() {
		fmt.Fprintf(cmd.ErrOrStderr(), "peering of %s: ready\n", who)
	}
	return err
}

func newPeeringRemoveCommand(hub *hubFlags) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "remove CONSUMER PROVIDER",
		Short: "End a peering that no instance needs",
		Long: `End a peering that no instance needs.

One that Sluice refuses to set up, for instance because Liqo was installed again, is ended in any case; the next
delivery of an instance that needs it makes another one.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			peering := newPeering(hub, args[0], args[1])
			if err := c.Get(cmd.Context(), client.ObjectKeyFromObject(peering), peering); err != nil {
				return fmt.Errorf("end the peering of %s and %s: %w", args[0], args[1], err)
			}
			return removePeering(cmd, c, peering, patience)
		},
	}
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait until it is deleted; 0 does not wait")
	return cmd
}

// removePeering deletes a peering that was read, unless an instance needs it. One that is refused serves no instance, and is
// made anew by what needs it; one by invitation is not, because its owner has to accept another invitation first.
func removePeering(cmd *cobra.Command, c client.Client, peering *v1alpha1.Peering, patience time.Duration) error {
	consumer, provider := peering.Spec.Consumer, peering.Spec.Provider
	var instances v1alpha1.ServiceInstanceList
	if err := c.List(cmd.Context(), &instances, client.InNamespace(peering.Namespace)); err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	replaceable := liqo.IsRefused(peering) && peering.Spec.Invited == nil
	for i := range instances.Items {
		if !replaceable && liqo.Takes(&instances.Items[i], consumer, provider) {
			return fmt.Errorf("instance %s needs the peering of %s and %s: deprovision it first", instances.Items[i].Spec.InstanceID, consumer, provider)
		}
	}
	if err := c.Delete(cmd.Context(), peering); err != nil {
		return fmt.Errorf("end the peering of %s and %s: %w", consumer, provider, err)
	}
	if patience == 0 {
		return nil
	}
	err := awaitPeering(cmd, c, peering, patience, func() bool { return false })
	if apierrors.IsNotFound(err) {
		fmt.Fprintf(cmd.ErrOrStderr(), "peering of %s and %s: nothing is left\n", consumer, provider)
		return nil
	}
	return err
}
