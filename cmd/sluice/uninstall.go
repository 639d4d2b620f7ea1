package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
)

func newUninstallCommand(hub *hubFlags) *cobra.Command {
	var patience time.Duration
	var confirmed confirmation
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Delete Sluice's resources from the hub, so that it can be uninstalled",
		Long: `Delete Sluice's resources from the hub, so that it can be uninstalled.

It deletes peerings, member clusters and service offerings, and waits until the controllers have released them: Sluice must
be running. It refuses, and changes nothing, while there are service instances, which their platforms deprovision first,
or clusters that placement policies have made: remove these policies first. Probes leave by themselves.
On a terminal, it asks first.
The chart runs this command before "helm uninstall".

Sluice's service account stays on the member clusters: remove it there with
"sluice cluster manifest --driver DRIVER | kubectl delete --ignore-not-found -f -".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			if !confirmed.given(cmd, "Delete all peerings, member clusters and service offerings from namespace %s of the hub?", hub.namespace) {
				return errors.New("nothing is deleted")
			}
			return uninstall(cmd.Context(), cmd.OutOrStdout(), c, hub.namespace, patience)
		},
	}
	hub.bind(cmd)
	confirmed.bind(cmd)
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait until the controllers have released everything")
	return cmd
}

// uninstall deletes the kinds with finalizers in the order of their dependencies, and waits
// until each kind is gone.
func uninstall(ctx context.Context, w io.Writer, c client.Client, namespace string, patience time.Duration) error {
	if err := refuseInstances(ctx, c, namespace); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, kind := range []struct {
		name   string
		list   client.ObjectList
		leaves bool // by itself
	}{
		{"peerings", &v1alpha1.PeeringList{}, false},
		{"member clusters", &v1alpha1.MemberClusterList{}, false},
		{"probes", &v1alpha1.ServiceInstanceList{}, true}, // with their clusters
		{"service offerings", &v1alpha1.ServiceOfferingList{}, false},
	} {
		if !kind.leaves {
			if err := deleteAll(ctx, c, namespace, kind.list); err != nil {
				return err
			}
		}
		if err := awaitNone(ctx, c, namespace, kind.list); err != nil {
			return fmt.Errorf("%s: not deleted after %s: %w; Sluice's controllers release them, so `sluice serve` must be running", kind.name, patience, err)
		}
		fmt.Fprintf(w, "%s: none is left\n", kind.name)
	}
	return nil
}

// refuseInstances returns an error that says who has to remove the instances that are left; nil if there are none but probes.
func refuseInstances(ctx context.Context, c client.Client, namespace string) error {
	var ordered, made, policies []string
	err := pages.Each(ctx, c, &v1alpha1.ServiceInstanceList{}, func(object client.Object) error {
		instance := object.(*v1alpha1.ServiceInstance)
		policy := instance.Labels[v1alpha1.LabelElastic]
		switch {
		case instance.MeasuredCluster() != "": // a probe leaves with its cluster
		case instance.Spec.Pool != nil: // a pool's order leaves with the consumer's, which is counted
		case instance.Spec.Platform == v1alpha1.PlatformSelf && policy != "":
			made, policies = append(made, instance.Name), append(policies, policy)
		default:
			ordered = append(ordered, instance.Name)
		}
		return nil
	}, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	var problems []string
	if len(ordered) > 0 {
		problems = append(problems, fmt.Sprintf("there are still service instances (%s): their platforms have to deprovision them first; `sluice instance list` shows whose they are", some(ordered)))
	}
	if len(made) > 0 {
		slices.Sort(policies)
		problems = append(problems, fmt.Sprintf("there are still clusters that placement policies have made (%s): remove these policies first with `sluice policy remove` (%s); Sluice then gives the clusters back",
			some(made), strings.Join(slices.Compact(policies), ", ")))
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

func deleteAll(ctx context.Context, c client.Client, namespace string, list client.ObjectList) error {
	return pages.Each(ctx, c, list, func(object client.Object) error {
		if err := c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", object.GetName(), err)
		}
		return nil
	}, client.InNamespace(namespace))
}

// awaitNone waits until the hub has no object of the list's kind.
func awaitNone(ctx context.Context, c client.Client, namespace string, list client.ObjectList) error {
	var left []string
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		names, err := namesOf(ctx, c, namespace, list)
		if err == nil {
			left = names
		}
		return len(names) == 0, err
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s", strings.Join(left, ", "))
	}
	return err
}

func namesOf(ctx context.Context, c client.Client, namespace string, list client.ObjectList) ([]string, error) {
	var names []string
	err := pages.Each(ctx, c, list, func(object client.Object) error {
		names = append(names, object.GetName())
		return nil
	}, client.InNamespace(namespace))
	return names, err
}
