package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/liqo"
)

func newPeeringCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peering",
		Short: "Peerings of member clusters by Liqo, and providers that join by invitation",
		Long: `Peerings of member clusters by Liqo.

Sluice peers clusters by itself when an instance needs it, with the rights that "sluice cluster add --driver liqo" gave
it on both. A provider that gives no such rights joins by invitation instead:

  operator   sluice peering invite theirs --cluster-id their-liqo-id --with our-hub > invitation.yaml
  provider   sluice peering accept invitation.yaml --context theirs > answer.yaml
  operator   sluice peering join answer.yaml

and leaves again by "sluice peering withdraw" (operator) and "sluice peering leave" (provider).`,
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
		Short: "List peerings, and what those wait for that are not ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client()
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

// truth is a condition in one word.
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
			c, err := hub.client()
			if err != nil {
				return err
			}
			peering := newPeering(hub, args[0], args[1])
			peering.Spec.Modules, peering.Spec.Kept = placement.ModulesFor(!networkOnly), true
			if err := apply(cmd.Context(), c, peering); err != nil {
				return fmt.Errorf("peer %s with %s: %w", args[0], args[1], err)
			}
			return awaitPeering(cmd, c, peering, patience, func() bool { return false })
		},
	}
	cmd.Flags().BoolVar(&networkOnly, "network-only", false, "without virtual nodes")
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

// awaitPeering waits until a peering is ready, or enough of it, saying on stderr what it waits for.
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
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client()
			if err != nil {
				return err
			}
			return removePeering(cmd, c, newPeering(hub, args[0], args[1]), patience)
		},
	}
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait until nothing is left of it; 0 does not wait")
	return cmd
}

// removePeering ends a peering, unless an instance has nodes by it.
func removePeering(cmd *cobra.Command, c client.Client, peering *v1alpha1.Peering, patience time.Duration) error {
	consumer, provider := peering.Spec.Consumer, peering.Spec.Provider
	var instances v1alpha1.ServiceInstanceList
	if err := c.List(cmd.Context(), &instances, client.InNamespace(peering.Namespace)); err != nil {
		return fmt.Errorf("list instances: %w", err)
	}
	for i := range instances.Items {
		if liqo.Takes(&instances.Items[i], consumer, provider) {
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

func newPeeringInviteCommand(hub *hubFlags) *cobra.Command {
	var id, with string
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "invite NAME --cluster-id ID --with CLUSTER",
		Short: "Invite a provider's cluster to be peered with a hub or a consumer's cluster",
		Long: `Invite a provider's cluster to be peered with a hub or a consumer's cluster, and print the invitation.

It holds no secrets. The cluster's owner finds its ID in the ConfigMap of its Liqo that is labelled
app.kubernetes.io/name=clusterid-configmap.`,
		Example: "  sluice peering invite theirs --cluster-id their-liqo-id --with our-hub > invitation.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client()
			if err != nil {
				return err
			}
			peering := newPeering(hub, with, args[0])
			peering.Spec.Modules, peering.Spec.Kept, peering.Spec.InvitedID = placement.ModulesFor(true), true, id
			if err := apply(cmd.Context(), c, peering); err != nil {
				return fmt.Errorf("invite %s: %w", args[0], err)
			}
			var invitation *liqo.Invitation
			err = awaitPeering(cmd, c, peering, patience, func() bool {
				invitation, err = liqo.InvitationOf(peering)
				return err == nil
			})
			if err != nil {
				return err
			}
			return printDocument(cmd, invitation)
		},
	}
	cmd.Flags().StringVar(&id, "cluster-id", "", "who the invited cluster is to its own Liqo")
	cmd.Flags().StringVar(&with, "with", "", "member cluster that it is to be peered with")
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait for the gateway that it is to call")
	_ = cmd.MarkFlagRequired("cluster-id")
	_ = cmd.MarkFlagRequired("with")
	return cmd
}

func printDocument(cmd *cobra.Command, document any) error {
	text, err := yaml.Marshal(document)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// readDocument reads an invitation or an answer.
func readDocument[T any](cmd *cobra.Command, file, kind string) (*T, error) {
	data, err := readInput(cmd, file)
	if err != nil {
		return nil, err
	}
	// First what it is: the fields of another document would only be called unknown.
	var got metav1.TypeMeta
	if err := yaml.Unmarshal(data, &got); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if got.Kind != kind || got.APIVersion != v1alpha1.GroupVersion.String() {
		return nil, fmt.Errorf("%s: is a %s %s, want %s %s", file, got.APIVersion, got.Kind, v1alpha1.GroupVersion, kind)
	}
	document := new(T)
	if err := yaml.UnmarshalStrict(data, document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return document, nil
}

func readInvitation(cmd *cobra.Command, file string) (*liqo.Invitation, error) {
	return readDocument[liqo.Invitation](cmd, file, liqo.KindInvitation)
}

func newPeeringAcceptCommand() *cobra.Command {
	var f clusterAddFlags
	var o liqo.AcceptOptions
	cmd := &cobra.Command{
		Use:   "accept FILE",
		Short: "Accept an invitation: for the owner of the invited cluster",
		Long: `Accept an invitation, and print the answer, for "sluice peering join".

It needs an administrator's context of the invited cluster, where Liqo is installed, and no access to Sluice. What it
gives away is in the answer, which is to be kept like a password: an account that may look at nodes, pods and namespaces
and judge requests for resources in one namespace, and one that may make such requests there. Nothing is accepted there
that Sluice has not sold; an admission policy sees to that. Accepting again prints the same answer.`,
		Example: "  sluice peering accept invitation.yaml --context theirs > answer.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			invitation, err := readInvitation(cmd, args[0])
			if err != nil {
				return err
			}
			admin, err := f.config()
			if err != nil {
				return err
			}
			o.Progress = func(what string) { fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", invitation.Cluster, what) }
			answer, err := liqo.Accept(cmd.Context(), admin, invitation, o)
			if err != nil {
				return err
			}
			return printDocument(cmd, answer)
		},
	}
	f.bindAdmin(cmd, "invited cluster")
	cmd.Flags().StringVar(&o.Server, "server", "", "URL at which Sluice and the inviting cluster reach the API server, where it differs from the kubeconfig's")
	cmd.Flags().StringVar(&o.LiqoNamespace, "liqo-namespace", names.DefaultNamespace, "namespace that Liqo is installed in")
	return cmd
}

// bindAdmin binds the flags of config.
func (f *clusterAddFlags) bindAdmin(cmd *cobra.Command, of string) {
	cmd.Flags().StringVar(&f.kubeconfig, "from-kubeconfig", "", "kubeconfig of the "+of+" (default: $KUBECONFIG or ~/.kube/config)")
	cmd.Flags().StringVar(&f.context, "context", "", "context in that kubeconfig (default: its current one)")
}

func newPeeringLeaveCommand() *cobra.Command {
	var f clusterAddFlags
	var namespace string
	cmd := &cobra.Command{
		Use:   "leave FILE",
		Short: "Take back what accepting an invitation has made: for the owner of the invited cluster",
		Long: `Take back what accepting an invitation has made.

What runs there for the other cluster ends with it. Sluice's operator learns of it because the cluster no longer answers;
"sluice peering withdraw" before is kinder.`,
		Example: "  sluice peering leave invitation.yaml --context theirs",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			invitation, err := readInvitation(cmd, args[0])
			if err != nil {
				return err
			}
			admin, err := f.config()
			if err != nil {
				return err
			}
			if err := liqo.Leave(cmd.Context(), admin, invitation, namespace); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s: has left %s\n", invitation.Cluster, invitation.With)
			return err
		},
	}
	f.bindAdmin(cmd, "invited cluster")
	cmd.Flags().StringVar(&namespace, "liqo-namespace", names.DefaultNamespace, "namespace that Liqo is installed in")
	return cmd
}

func newPeeringJoinCommand(hub *hubFlags) *cobra.Command {
	f := &clusterAddFlags{driver: v1alpha1.DriverLiqo}
	cmd := &cobra.Command{
		Use:     "join FILE",
		Short:   "Register a provider's cluster by its answer to an invitation",
		Example: "  sluice peering join answer.yaml --provider acme --region eu-de",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := readDocument[liqo.Answer](cmd, args[0], liqo.KindAnswer)
			if err != nil {
				return err
			}
			if args[0] != "-" {
				if info, err := os.Stat(args[0]); err == nil && info.Mode().Perm()&0o077 != 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s holds credentials, and others on this machine can read it\n", args[0])
				}
			}
			return joinCluster(cmd, hub, f, answer)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.provider, "provider", "", "organisation that runs the cluster")
	flags.StringVar(&f.region, "region", "", "region of the cluster")
	flags.StringVar(&f.zone, "zone", "", "zone within the region")
	flags.StringVar(&f.tier, "tier", string(v1alpha1.TierCloud), "tier of the cluster: cloud or edge")
	flags.StringToStringVarP(&f.labels, "label", "l", nil, "labels that selectors match, key=value")
	flags.StringArrayVar(&f.taints, "taint", nil, "taint that repels requests, key=value:NoSchedule (repeatable)")
	flags.StringVar(&f.currency, "currency", "EUR", "currency of --price, an ISO 4217 code")
	flags.StringToStringVar(&f.prices, "price", nil, "price of one unit for one hour by resource, for instance cpu=0.04,memory=0.005 (memory by the GiB)")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "how long to wait until the cluster is ready and peered; 0 does not wait")
	return cmd
}

// joinCluster registers the cluster, and waits until it is peered.
func joinCluster(cmd *cobra.Command, hub *hubFlags, f *clusterAddFlags, answer *liqo.Answer) error {
	ctx := cmd.Context()
	c, err := hub.client()
	if err != nil {
		return err
	}
	peering := newPeering(hub, answer.With, answer.Cluster)
	if err := c.Get(ctx, client.ObjectKeyFromObject(peering), peering); err != nil {
		return fmt.Errorf("find the invitation of %s by %s: %w", answer.Cluster, answer.With, err)
	}
	if peering.Spec.InvitedID != answer.Network.ClusterID {
		return fmt.Errorf("cluster %s was invited, and %s answers", peering.Spec.InvitedID, answer.Network.ClusterID)
	}
	cluster, err := f.cluster(answer.Cluster)
	if err != nil {
		return err
	}
	cluster.Namespace = hub.namespace
	cluster.Spec.Liqo = &v1alpha1.LiqoCluster{
		Joined: &v1alpha1.JoinedPeering{With: answer.With, PublicKey: answer.PublicKey, Network: answer.Network},
	}
	if cluster.Spec.Access, err = storeAccess(ctx, hub, c, cluster, []byte(answer.Kubeconfig)); err != nil {
		return fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if cluster.Spec.Liqo.Joined.Identity, err = storeAccess(ctx, hub, c, v1alpha1.JoinedIdentity(cluster), []byte(answer.Identity)); err != nil {
		return fmt.Errorf("cluster %s: %w", cluster.Name, err)
	}
	if err := apply(ctx, c, cluster); err != nil {
		return fmt.Errorf("cluster %s: write it to the hub: %w", cluster.Name, err)
	}
	if f.wait == 0 {
		return nil
	}
	return errors.Join(awaitCluster(ctx, cmd.OutOrStdout(), c, cluster, f.wait), awaitPeering(cmd, c, peering, f.wait, func() bool { return false }))
}

func newPeeringWithdrawCommand(hub *hubFlags) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "withdraw NAME --with CLUSTER",
		Short: "Withdraw an invitation, or part from a cluster that has joined by one",
		Args:  cobra.ExactArgs(1),
	}
	var with string
	cmd.Flags().StringVar(&with, "with", "", "member cluster that it is peered with")
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait until nothing is left on that side; 0 does not wait")
	_ = cmd.MarkFlagRequired("with")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := hub.client()
		if err != nil {
			return err
		}
		if err := removePeering(cmd, c, newPeering(hub, with, args[0]), patience); client.IgnoreNotFound(err) != nil {
			return err
		}
		cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: hub.namespace, Name: args[0]}}
		if err := client.IgnoreNotFound(c.Delete(cmd.Context(), cluster)); err != nil {
			return fmt.Errorf("cluster %s: %w", args[0], err)
		}
		return nil
	}
	return cmd
}
