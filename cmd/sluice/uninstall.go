package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
be running. It refuses, and changes nothing, while there are service instances: their platforms deprovision them first.
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
	instances, err := namesOf(ctx, c, namespace, &v1alpha1.ServiceInstanceList{})
	if err != nil {
		return err
	}
	if n := len(instances); n > 0 {
		return fmt.Errorf("there are still %s (%s): their platforms have to deprovision them first; `sluice instance list` shows whose they are",
			count(n, "service instance"), strings.Join(instances[:min(n, 5)], ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, kind := range []struct {
		name string
		list client.ObjectList
	}{
		{"peerings", &v1alpha1.PeeringList{}},
		{"member clusters", &v1alpha1.MemberClusterList{}},
		{"service offerings", &v1alpha1.ServiceOfferingList{}},
	} {
		if err := deleteAll(ctx, c, namespace, kind.list); err != nil {
			return err
		}
		if err := awaitNone(ctx, c, namespace, kind.list); err != nil {
			return fmt.Errorf("%s: not deleted after %s: %w; Sluice's controllers release them, so `sluice serve` must be running", kind.name, patience, err)
		}
		fmt.Fprintf(w, "%s: none is left\n", kind.name)
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
