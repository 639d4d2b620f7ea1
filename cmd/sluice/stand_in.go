package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/overview"
	"github.com/sluice-dev/sluice/placement/registration"
)

// standIn describes a broker or a pool, which is registered as a member cluster and has no API server.
type standIn interface {
	// describeOwn applies those flags on the command line that clusters do not have.
	describeOwn(*v1alpha1.MemberCluster, given) error
	// prepare checks what it refers to, and keeps its credentials.
	prepare(context.Context, client.Client, *hubFlags, *v1alpha1.MemberCluster, given) error
	// offers says what one that is ready has to offer.
	offers(context.Context, client.Client, *v1alpha1.MemberCluster) (string, error)
}

// addAs registers a broker or a pool, or changes it, and waits until it is ready. Kind is that of the overview.
func (f *clusterAddFlags) addAs(cmd *cobra.Command, hub *hubFlags, kind, name string, s standIn) error {
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	ctx, given := cmd.Context(), givenOf(cmd)
	key := client.ObjectKey{Namespace: hub.namespace, Name: name}
	one, err := registration.Hub{Client: c, Owner: fieldOwner}.Change(ctx, key, func(one *v1alpha1.MemberCluster) error {
		if is := overview.KindOf(one); one.UID != "" && is != kind {
			return fmt.Errorf("a %s has that name: take another", is)
		}
		if err := errors.Join(f.describe(one, given), s.describeOwn(one, given)); err != nil {
			return err
		}
		return s.prepare(ctx, c, hub, one, given)
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	if f.wait == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s: registered\n", kind, name)
		return nil
	}
	if err := awaitReady(ctx, cmd.OutOrStdout(), c, kind, one, f.wait); err != nil {
		return err
	}
	offers, err := s.offers(ctx, c, one)
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s: ready, %s\n", kind, name, offers)
	return err
}

// newStandInRemoveCommand returns the command that removes brokers or pools. The remedy is for those with instances.
func newStandInRemoveCommand(hub *hubFlags, kind, remedy string) *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a " + kind + " out of the inventory; one with instances is refused",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			key := client.ObjectKey{Namespace: hub.namespace, Name: args[0]}
			one, err := getAs(cmd.Context(), c, kind, key)
			if err != nil {
				return err
			}
			ordered, err := orderedFrom(cmd.Context(), c, one)
			if err != nil {
				return err
			}
			if len(ordered) > 0 {
				return fmt.Errorf("%s %s: %s there: %s. %s", kind, key.Name, count(len(ordered), "instance"), some(ordered), remedy)
			}
			return removeCluster(cmd.Context(), cmd.OutOrStdout(), c, kind, key, patience)
		},
	}
	cmd.Flags().DurationVar(&patience, "wait", time.Minute, "how long to wait until it is removed; 0 does not wait")
	return cmd
}

// getAs reads a member cluster of a kind.
func getAs(ctx context.Context, c client.Client, kind string, key client.ObjectKey) (*v1alpha1.MemberCluster, error) {
	one := &v1alpha1.MemberCluster{}
	err := c.Get(ctx, key, one)
	if err == nil {
		err = checkKind(one, kind)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, key.Name, err)
	}
	return one, nil
}

// checkKind returns an error that names the commands to use if a member cluster is of another kind.
func checkKind(cluster *v1alpha1.MemberCluster, kind string) error {
	if is := overview.KindOf(cluster); is != kind {
		return fmt.Errorf("it is a %s: use `sluice %s`", is, is)
	}
	return nil
}

// readInventory returns all member clusters, of every kind, and all instances.
func readInventory(ctx context.Context, c client.Client, namespace string) ([]v1alpha1.MemberCluster, []v1alpha1.ServiceInstance, error) {
	var clusters v1alpha1.MemberClusterList
	if err := c.List(ctx, &clusters, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("list member clusters: %w", err)
	}
	var instances v1alpha1.ServiceInstanceList
	if err := c.List(ctx, &instances, client.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("list service instances: %w", err)
	}
	return clusters.Items, instances.Items, nil
}

// ofKind returns the member clusters of a kind.
func ofKind(clusters []v1alpha1.MemberCluster, kind string) []v1alpha1.MemberCluster {
	return slices.DeleteFunc(slices.Clone(clusters), func(c v1alpha1.MemberCluster) bool { return overview.KindOf(&c) != kind })
}

// orderedFrom returns the instances at a broker or on a pool.
func orderedFrom(ctx context.Context, c client.Client, one *v1alpha1.MemberCluster) (ordered []string, err error) {
	var instances v1alpha1.ServiceInstanceList
	if err := c.List(ctx, &instances, client.InNamespace(one.Namespace)); err != nil {
		return nil, fmt.Errorf("list service instances: %w", err)
	}
	return instancesAt(one.Name, instances.Items), nil
}

// instancesAt names those of the instances that are on a member cluster, or have left something there.
func instancesAt(cluster string, instances []v1alpha1.ServiceInstance) (names []string) {
	for i := range instances {
		if hasAnythingAt(cluster, &instances[i]) {
			names = append(names, nameForPeople(&instances[i]))
		}
	}
	return names
}

// hasAnythingAt reports whether an instance is on a member cluster, or has left something there.
func hasAnythingAt(cluster string, instance *v1alpha1.ServiceInstance) bool {
	return instance.Status.IsOn(cluster) || slices.Contains(instance.Status.LeftClusters(), cluster)
}

// nameForPeople returns an instance's id and platform.
func nameForPeople(instance *v1alpha1.ServiceInstance) string {
	return fmt.Sprintf("%s (%s)", printable(instance.Spec.InstanceID), instance.Spec.Platform)
}
