package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/strictjson"
	"github.com/sluice-dev/sluice/placement/liqo"
	"github.com/sluice-dev/sluice/placement/registration"
)

func newPeeringInviteCommand(hub *hubFlags) *cobra.Command {
	invited := &v1alpha1.InvitedCluster{Role: v1alpha1.SideProvider}
	var with string
	var consumes, networkOnly bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "invite NAME --cluster-id ID --with CLUSTER",
		Short: "Invite the owner of a cluster to peer it with a member cluster, as a provider or a consumer",
		Long: `Invite somebody's cluster to be peered with a member cluster, and print the invitation.

The cluster joins as a provider, which sells capacity to the member cluster or, if that is a hub, to the clusters
behind it. With --consumes it joins as a consumer, to which the capacity that its owner buys is delivered. The
invitation contains no secrets. The cluster's owner finds the ID in Liqo's ConfigMap with the label
app.kubernetes.io/name=clusterid-configmap.`,
		Example: `  sluice peering invite theirs --cluster-id their-liqo-id --with our-hub > invitation.yaml
  sluice peering invite theirs --cluster-id their-liqo-id --with eu-1 --consumes > invitation.yaml
  sluice peering invite theirs --cluster-id their-liqo-id --with our-hub --consumes --network-only > invitation.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			if networkOnly && !consumes {
				return errors.New("--network-only is for consumers (--consumes): a provider that joins by invitation serves virtual nodes")
			}
			if consumes {
				invited.Role = v1alpha1.SideConsumer
			}
			peering := invitedPeering(hub, invited.Role, args[0], with)
			peering.Spec.Modules, peering.Spec.Kept, peering.Spec.Invited = v1alpha1.ModulesFor(!networkOnly), true, invited
			if err := apply(cmd.Context(), c, peering); err != nil {
				return fmt.Errorf("invite %s: %w", args[0], err)
			}
			var invitation *liqo.Invitation
			problem := errors.New("it is being created: run the command again")
			err = awaitPeering(cmd, c, peering, patience, func() bool {
				invitation, problem = liqo.InvitationOf(peering)
				return problem == nil
			})
			if err != nil {
				return err
			}
			if problem != nil {
				return fmt.Errorf("invite %s: %w", args[0], problem)
			}
			return printDocument(cmd, invitation)
		},
	}
	cmd.Flags().StringVar(&invited.ClusterID, "cluster-id", "", "ID of the invited cluster in its own Liqo")
	cmd.Flags().StringVar(&with, "with", "", "member cluster with which it is peered")
	cmd.Flags().BoolVar(&consumes, "consumes", false, "invite the cluster as a consumer, to which capacity that its owner buys is delivered")
	cmd.Flags().BoolVar(&networkOnly, "network-only", false, "connect only the networks, without virtual nodes; with --consumes")
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait for the Liqo gateway of that member cluster")
	_ = cmd.MarkFlagRequired("cluster-id")
	_ = cmd.MarkFlagRequired("with")
	return cmd
}

// invitedPeering returns the Peering of an invited cluster, in the given role, with the
// inviting cluster.
func invitedPeering(hub *hubFlags, role v1alpha1.PeeringSide, name, with string) *v1alpha1.Peering {
	if role == v1alpha1.SideConsumer {
		return newPeering(hub, name, with)
	}
	return newPeering(hub, with, name)
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
	// Check the kind first: the fields of another kind would only be reported as unknown.
	var got metav1.TypeMeta
	if err := yaml.Unmarshal(data, &got); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if got.Kind != kind || got.APIVersion != v1alpha1.GroupVersion.String() {
		return nil, fmt.Errorf("%s: is a %s %s, want %s %s", file, got.APIVersion, got.Kind, v1alpha1.GroupVersion, kind)
	}
	document := new(T)
	if err := strictjson.DecodeYAML(data, document); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return document, nil
}

func readInvitation(cmd *cobra.Command, file string) (*liqo.Invitation, error) {
	return readDocument[liqo.Invitation](cmd, file, liqo.KindInvitation)
}

func newPeeringAcceptCommand() *cobra.Command {
	var f adminFlags
	var o liqo.AcceptOptions
	var capacity map[string]string
	cmd := &cobra.Command{
		Use:   "accept FILE",
		Short: "Accept an invitation; for the owner of the invited cluster",
		Long: `Accept an invitation, and print the answer, for "sluice peering join".

It needs an administrator's context of the invited cluster, where Liqo is installed, and no access to Sluice. Keep the
answer like a password: it contains the credentials of an account for Sluice, which may read nodes, pods and namespaces;
with --capacity, only namespaces: Sluice sells what is declared, and does not see the nodes. On a provider's cluster the
account may also accept or deny resource slices in one namespace, and a second account may request them there; an
admission policy denies slices that Sluice has not sold. On a consumer's cluster the account may request resource slices
in one namespace; the answer also proves to Liqo at the other end that the cluster has its key, without containing the
key. Accepting again prints the same answer.`,
		Example: `  sluice peering accept invitation.yaml --context theirs > answer.yaml
  sluice peering accept invitation.yaml --context theirs --capacity cpu=8,memory=32Gi,pods=110 > answer.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			invitation, admin, err := f.invited(cmd, args[0])
			if err != nil {
				return err
			}
			if o.Capacity, err = amounts("--capacity", capacity, "0", "an amount, for instance 10 or 64Gi"); err != nil {
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
	f.bind(cmd, "invited cluster")
	cmd.Flags().StringVar(&o.Server, "server", "", "URL at which Sluice and the inviting cluster reach the API server, if it is not the kubeconfig's")
	cmd.Flags().StringToStringVar(&capacity, "capacity", nil, "what a provider's cluster has for sale, for instance cpu=8,memory=32Gi,pods=110; Sluice then gets no right to read its nodes and pods")
	cmd.Flags().StringVar(&o.LiqoNamespace, "liqo-namespace", names.DefaultNamespace, "namespace of Liqo")
	return cmd
}

// invited returns an invitation, and the administrator's access to the invited cluster.
func (f *adminFlags) invited(cmd *cobra.Command, file string) (*liqo.Invitation, *rest.Config, error) {
	invitation, err := readInvitation(cmd, file)
	if err != nil {
		return nil, nil, err
	}
	admin, err := f.config(cmd)
	return invitation, admin, err
}

func newPeeringLeaveCommand() *cobra.Command {
	var f adminFlags
	var namespace string
	cmd := &cobra.Command{
		Use:   "leave FILE",
		Short: "Remove what accepting an invitation created; for the owner of the invited cluster",
		Long: `Remove what accepting an invitation created.

The pods that run there for the other cluster end, too. Sluice's operator notices only that the cluster no longer
answers: if possible, let the operator run "sluice peering withdraw" first.`,
		Example: "  sluice peering leave invitation.yaml --context theirs",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			invitation, admin, err := f.invited(cmd, args[0])
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
	f.bind(cmd, "invited cluster")
	cmd.Flags().StringVar(&namespace, "liqo-namespace", names.DefaultNamespace, "namespace of Liqo")
	return cmd
}

func newPeeringJoinCommand(hub *hubFlags) *cobra.Command {
	f := &clusterAddFlags{driver: v1alpha1.DriverLiqo}
	cmd := &cobra.Command{
		Use:   "join FILE",
		Short: "Register a cluster by its owner's answer to an invitation",
		Example: `  sluice peering join answer.yaml --provider acme --region eu-de
  sluice peering join answer.yaml --consumer default/acme`,
		Args: cobra.ExactArgs(1),
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
	f.bindDescription(cmd)
	f.bindCapacity(cmd, "what the cluster has for sale, if that is not what its owner has declared, for instance cpu=8,memory=32Gi,pods=110")
	f.liqo.bindConsumers(flags)
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "how long to wait until the cluster is ready and peered; 0 does not wait")
	return cmd
}

// mayJoinAs returns an error if the name is that of a member cluster that did not join by
// the invitation of the cluster with. The cluster has no UID if there is none of that name.
func mayJoinAs(cluster *v1alpha1.MemberCluster, with string) error {
	switch {
	case cluster.UID == "":
		return nil
	case !cluster.IsJoined():
		return errors.New("another member cluster has that name, and did not join by invitation")
	case cluster.Spec.Liqo.Joined.With != with:
		inviting := cluster.Spec.Liqo.Joined.With
		return fmt.Errorf("it has joined by the invitation of %s, and is peered with no other cluster: `sluice peering withdraw %s --with %s` first", inviting, cluster.Name, inviting)
	}
	return nil
}

// joinCluster registers the cluster, and waits until it is peered.
func joinCluster(cmd *cobra.Command, hub *hubFlags, f *clusterAddFlags, answer *liqo.Answer) error {
	ctx := cmd.Context()
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	consumes := answer.Role == v1alpha1.SideConsumer
	if consumes != (len(f.liqo.consumers) > 0) {
		return fmt.Errorf("--consumer is required for clusters that are invited with --consumes, and only for those; %s was invited as a %s", answer.Cluster, strings.ToLower(string(answer.Role)))
	}
	peering := invitedPeering(hub, answer.Role, answer.Cluster, answer.With)
	if err := c.Get(ctx, client.ObjectKeyFromObject(peering), peering); err != nil {
		return fmt.Errorf("find the invitation of %s to peer with %s: %w", answer.Cluster, answer.With, err)
	}
	if !peering.IsInvited(answer.Role) || peering.Spec.Invited.ClusterID != answer.Network.ClusterID {
		return fmt.Errorf("cluster %s accepted as a %s, but the invitation to peer with %s does not say so", answer.Network.ClusterID, strings.ToLower(string(answer.Role)), answer.With)
	}
	key := client.ObjectKey{Namespace: hub.namespace, Name: answer.Cluster}
	known := &v1alpha1.MemberCluster{}
	if err := c.Get(ctx, key, known); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	if err := mayJoinAs(known, answer.With); err != nil { // before its credentials are replaced
		return fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	named := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	store, err := hub.store(c)
	if err != nil {
		return err
	}
	kubeconfig, err := rewritten("kubeconfig", answer.Kubeconfig)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	var identity []byte
	if !consumes {
		if identity, err = rewritten("identity", answer.Identity); err != nil {
			return fmt.Errorf("cluster %s: %w", key.Name, err)
		}
	}
	access, err := store.Store(ctx, named, kubeconfig)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	joined := &v1alpha1.JoinedPeering{With: answer.With, PublicKey: answer.PublicKey, Network: answer.Network, Handshake: answer.Handshake}
	named.Spec.Liqo = &v1alpha1.LiqoCluster{Joined: joined}
	if !consumes {
		access, err := store.Store(ctx, v1alpha1.JoinedIdentity(named), identity)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", key.Name, err)
		}
		joined.Identity = &access
	}
	given := givenOf(cmd)
	cluster, err := registration.Hub{Client: c, Owner: fieldOwner}.Change(ctx, key, func(cluster *v1alpha1.MemberCluster) error {
		if err := mayJoinAs(cluster, answer.With); err != nil {
			return err
		}
		if err := f.describe(cluster, given); err != nil {
			return err
		}
		cluster.Spec.Access = access
		if !given("capacity") {
			cluster.Spec.Capacity = answer.Capacity
		}
		cluster.Spec.Liqo = &v1alpha1.LiqoCluster{Joined: joined, Modules: peering.Spec.Modules}
		return nil
	})
	if err != nil {
		return fmt.Errorf("cluster %s: write it to the hub: %w", key.Name, err)
	}
	if f.wait == 0 {
		return nil
	}
	return errors.Join(awaitCluster(ctx, cmd.OutOrStdout(), c, cluster, f.wait), awaitPeering(cmd, c, peering, f.wait, func() bool { return false }))
}

// rewritten returns the kubeconfig in a field of an answer with the server and the inline credentials only.
func rewritten(field, given string) ([]byte, error) {
	kubeconfig, err := member.ParseForeign([]byte(given))
	if err != nil {
		return nil, fmt.Errorf("the answer is refused: %s: %w", field, err)
	}
	return kubeconfig.Marshal()
}

func newPeeringWithdrawCommand(hub *hubFlags) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "withdraw NAME --with CLUSTER",
		Short: "Withdraw an invitation, or remove a cluster that has joined by one",
		Args:  cobra.ExactArgs(1),
	}
	var with string
	cmd.Flags().StringVar(&with, "with", "", "member cluster with which it is peered")
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait until it is deleted on that side; 0 does not wait")
	_ = cmd.MarkFlagRequired("with")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := hub.client(cmd)
		if err != nil {
			return err
		}
		return withdraw(cmd, hub, c, args[0], with, patience)
	}
	return cmd
}

// withdraw deletes the peering that a cluster was invited to, in either role, and the
// MemberCluster if it has joined by that invitation. It is an error if neither is there.
func withdraw(cmd *cobra.Command, hub *hubFlags, c client.Client, name, with string, patience time.Duration) error {
	ctx, withdrawn := cmd.Context(), false
	for _, role := range []v1alpha1.PeeringSide{v1alpha1.SideProvider, v1alpha1.SideConsumer} {
		peering := invitedPeering(hub, role, name, with)
		err := c.Get(ctx, client.ObjectKeyFromObject(peering), peering)
		if err == nil && peering.IsInvited(role) {
			err = removePeering(cmd, c, peering, patience)
			withdrawn = withdrawn || err == nil
		}
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	cluster := &v1alpha1.MemberCluster{}
	err := c.Get(ctx, client.ObjectKey{Namespace: hub.namespace, Name: name}, cluster)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && (!cluster.IsJoined() || cluster.Spec.Liqo.Joined.With != with) {
		if withdrawn {
			return nil
		}
		return fmt.Errorf("cluster %s was not peered with %s by invitation, and is not removed", name, with)
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", name, err)
	}
	return removeCluster(ctx, cmd.OutOrStdout(), c, "cluster", client.ObjectKeyFromObject(cluster), patience)
}
