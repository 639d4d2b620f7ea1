package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement/registration"
)

func newClusterRemoveCommand(hub *hubFlags) *cobra.Command {
	var patience time.Duration
	var whenEmpty bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a member cluster out of the inventory",
		Long: `Take a member cluster out of the inventory. A cluster that instances or peerings use is refused. With --when-empty it
takes no new placements from now on, which cannot be undone, and is removed as soon as nothing uses it.

Sluice's service account stays on the cluster. Remove it there, with the driver of the cluster:

  sluice cluster manifest --driver DRIVER | kubectl delete --ignore-not-found -f -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			key := client.ObjectKey{Namespace: hub.namespace, Name: args[0]}
			if !whenEmpty {
				if err := refuseInUse(cmd.Context(), c, key); err != nil {
					return err
				}
			}
			return removeCluster(cmd.Context(), cmd.OutOrStdout(), c, "cluster", key, patience)
		},
	}
	cmd.Flags().BoolVar(&whenEmpty, "when-empty", false, "accept a cluster that is in use: stop new placements on it, and remove it when it is empty")
	cmd.Flags().DurationVar(&patience, "wait", time.Minute, "how long to wait until it is removed; 0 does not wait")
	return cmd
}

// refuseInUse returns an error that names the users of a cluster and a remedy; nil if it is
// not in use.
func refuseInUse(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var instances v1alpha1.ServiceInstanceList
	if err := c.List(ctx, &instances, client.InNamespace(key.Namespace)); err != nil {
		return fmt.Errorf("list service instances: %w", err)
	}
	var on []string
	for i := range instances.Items {
		instance := &instances.Items[i]
		if instance.Status.IsOn(key.Name) && instance.MeasuredCluster() == "" { // a probe leaves by itself
			on = append(on, nameForPeople(instance))
		}
	}
	if len(on) > 0 {
		verb := "are"
		if len(on) == 1 {
			verb = "is"
		}
		return fmt.Errorf("cluster %s: %s %s on it: %s. Deprovision, or move off by sluice cluster drain %s, then try again; "+
			"with --when-empty it takes nothing new from now on, and leaves by itself", key.Name, count(len(on), "instance"), verb, some(on), key.Name)
	}
	var clusters v1alpha1.MemberClusterList
	if err := c.List(ctx, &clusters, client.InNamespace(key.Namespace)); err != nil {
		return fmt.Errorf("list member clusters: %w", err)
	}
	for i := range clusters.Items {
		if pool := clusters.Items[i].Spec.Pool; pool != nil && pool.Front == key.Name {
			return fmt.Errorf("cluster %s: it is the front of pool %[2]s: give the pool another one with `sluice pool add %[2]s --front HUB`, or remove it first", key.Name, clusters.Items[i].Name)
		}
	}
	var cluster v1alpha1.MemberCluster
	if err := c.Get(ctx, key, &cluster); err != nil {
		return fmt.Errorf("cluster %s: %w", key.Name, err)
	}
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.ConditionReachable) {
		return nil // removal does not wait for peerings with a cluster that does not answer
	}
	var peerings v1alpha1.PeeringList
	if err := c.List(ctx, &peerings, client.InNamespace(key.Namespace)); err != nil {
		return fmt.Errorf("list peerings: %w", err)
	}
	var with []string
	for _, p := range peerings.Items {
		if p.Spec.Consumer == key.Name || p.Spec.Provider == key.Name {
			with = append(with, p.Spec.Consumer+" "+p.Spec.Provider)
		}
	}
	if len(with) > 0 {
		return fmt.Errorf("cluster %s: it is peered: end that first by sluice peering remove %s; with --when-empty it leaves by itself when that has been done",
			key.Name, strings.Join(with, ", "))
	}
	return nil
}

// some joins the first few names and counts the others.
func some(names []string) string { return lists.Some(names, 5) }

// removeCluster deletes a member cluster, waits until it has left, and then deletes the
// Secrets with the access to it. what it is called in messages.
func removeCluster(ctx context.Context, w io.Writer, c client.Client, what string, key client.ObjectKey, patience time.Duration) error {
	cluster := &v1alpha1.MemberCluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		return fmt.Errorf("%s %s: %w", what, key.Name, err)
	}
	secrets, err := accessSecrets(ctx, c, cluster)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, key.Name, err)
	}
	if err := c.Delete(ctx, cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s %s: %w", what, key.Name, err)
	}
	if patience == 0 {
		fmt.Fprintf(w, "%s %s: leaving%s\n", what, key.Name, secretsLeft(secrets))
		return nil
	}
	told := ""
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, cluster)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if ready := viewCondition(cluster.Status.Conditions, v1alpha1.ConditionReady); err == nil && ready != nil && !ready.isTrue && ready.message != told {
			told = ready.message
			fmt.Fprintf(w, "%s %s: %s\n", what, key.Name, printable(told))
		}
		return false, err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s %s: it is leaving, and still there after %s%s", what, key.Name, patience, secretsLeft(secrets))
	}
	if err != nil {
		return fmt.Errorf("%s %s: wait until it has left: %w%s", what, key.Name, err, secretsLeft(secrets))
	}
	for i, name := range secrets {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}}
		if err := c.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("%s %s: has left: delete Secret %s: %w%s", what, key.Name, name, err, secretsLeft(secrets[i:]))
		}
	}
	fmt.Fprintf(w, "%s %s: has left the inventory\n", what, key.Name)
	return nil
}

// accessSecrets returns the names of the Secrets with the access to a member cluster that
// Sluice's commands created, and to which no other cluster refers.
func accessSecrets(ctx context.Context, c client.Client, cluster *v1alpha1.MemberCluster) (made []string, err error) {
	for _, holder := range registration.Holders(cluster) {
		ref := holder.Spec.Access.SecretRef
		if ref == nil || ref.Name != registration.SecretName(holder.Name) {
			continue
		}
		other, err := registration.OtherUser(ctx, c, client.ObjectKeyFromObject(cluster), ref.Name)
		if err != nil {
			return nil, err
		}
		if other == "" {
			made = append(made, ref.Name)
		}
	}
	return made, nil
}

// secretsLeft names the Secrets that the user must delete.
func secretsLeft(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; the access to it stays in Secret " + strings.Join(names, ", ") + ": delete that when it has left"
}
