package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/carried"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/placement/kube"
)

func newRemnantCommand(flags *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remnant",
		Short: "Adopt or remove what sluice collect finds on member clusters",
	}
	flags.bind(cmd)
	cmd.AddCommand(newRemnantAdoptCommand(flags), newRemnantRemoveCommand(flags))
	return cmd
}

func newRemnantAdoptCommand(flags *hubFlags) *cobra.Command {
	var found remnants
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "adopt CLUSTER/NAMESPACE...",
		Short: "Make instances known to the hub again that member clusters still have",
		Long: `Make instances known to the hub again that "sluice collect" finds: those that were ordered after the backup from which
the hub was restored. A namespace carries its order, sealed with the hub's keyset: what the platform asked for, where the
instance was placed, and the secrets of its workload. The instance gets the same ids and the same clusters, what it has
there is reserved again, and it is checked; nothing is placed anew, and nothing is removed if that fails.

An instance that is on several clusters is adopted by naming one of its namespaces, if all of them are found. Clusters,
peered instances and those of other brokers cannot be adopted. Bindings are not: bind again.`,
		Example: `  sluice remnant adopt eu/sluice-1f0c6ae0b7c54c5a9d3e8f7766554433221100ff`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := found.open(cmd, flags); err != nil {
				return err
			}
			report, unread := found.collector.Collect(cmd.Context(), false)
			var errs []error
			for _, arg := range args {
				err := found.adopt(cmd, report.Remnants, arg, patience)
				if err != nil {
					errs = append(errs, fmt.Errorf("adopt %s: %w", arg, errors.Join(err, unread)))
				}
			}
			return errors.Join(errs...)
		},
	}
	found.bind(cmd)
	cmd.Flags().DurationVar(&patience, "wait", 2*time.Minute, "how long to wait until each instance is taken over; 0 does not wait")
	return cmd
}

// adopt makes the ServiceInstance of a namespace again.
func (r *remnants) adopt(cmd *cobra.Command, all []kube.Remnant, arg string, patience time.Duration) error {
	at := slices.IndexFunc(all, func(found kube.Remnant) bool { return found.Kind == "Namespace" && nameOf(&found) == arg })
	if at < 0 {
		return errors.New("no such namespace is found: `sluice collect` lists them")
	}
	chosen := &all[at]
	if chosen.Elsewhere {
		return errors.New("the hub has the instance, on other clusters")
	}
	order, err := r.order(chosen)
	if err != nil {
		return err
	}
	if err := r.isWhole(all, chosen, order); err != nil {
		return err
	}
	instance := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.namespace, Name: chosen.Owner, Finalizers: []string{v1alpha1.Finalizer},
			Annotations: map[string]string{v1alpha1.AnnotationAdopt: chosen.Order()},
		},
		Spec: order.Spec,
	}
	err = r.hub.Create(cmd.Context(), instance, client.FieldOwner(fieldOwner))
	if apierrors.IsAlreadyExists(err) {
		return errors.New("the hub has the instance since: its platform has ordered it again")
	}
	if err != nil {
		return fmt.Errorf("make the ServiceInstance: %w", err)
	}
	if patience > 0 {
		if err := r.awaitAdopted(cmd.Context(), instance, patience); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "adopted instance %s of %s on %s\n", printable(order.Spec.InstanceID), order.Spec.Platform, strings.Join(order.Decision.Clusters(), ", "))
	return err
}

// isWhole returns an error unless each cluster of the order that a namespace carries has the namespace, with the same order.
func (r *remnants) isWhole(all []kube.Remnant, chosen *kube.Remnant, want *carried.Order) error {
	clusters := want.Decision.Clusters()
	var has []string
	for i := range all {
		one := &all[i]
		if one.Kind != "Namespace" || one.Owner != chosen.Owner || !slices.Contains(clusters, one.Cluster) {
			continue
		}
		if one.IsEnding() {
			return fmt.Errorf("its namespace on %s is being deleted", one.Cluster)
		}
		order, err := r.order(one)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Cluster, err)
		}
		if !order.Equal(want) {
			return fmt.Errorf("%s carries another order of it, because it was updated or moved: remove what is too much there first", one.Cluster)
		}
		has = append(has, one.Cluster)
	}
	if !slices.Contains(has, chosen.Cluster) {
		return fmt.Errorf("by its order it is on %s, not on %s", strings.Join(clusters, ", "), chosen.Cluster)
	}
	if missing := lists.Without(clusters, has); len(missing) > 0 {
		return fmt.Errorf("by its order it is on %s too, where it was not found", strings.Join(missing, ", "))
	}
	return nil
}

// awaitAdopted returns when the controller has taken an instance over.
func (r *remnants) awaitAdopted(ctx context.Context, instance *v1alpha1.ServiceInstance, patience time.Duration) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := r.hub.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return instance.Status.Delivered != nil, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		why := "sluice serve does not answer"
		if ready := meta.FindStatusCondition(instance.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			why = ready.Message
		} else if op := instance.Status.Operation; op != nil {
			why = cmp.Or(op.Description, why)
		}
		return fmt.Errorf("not taken over after %s; it goes on: %s", patience, why)
	}
	return err
}

func newRemnantRemoveCommand(flags *hubFlags) *cobra.Command {
	var found remnants
	var confirmed confirmation
	cmd := &cobra.Command{
		Use:   "remove CLUSTER/NAMESPACE[/NAME]...",
		Short: "Remove single objects that no instance or binding owns",
		Long: `Remove objects that "sluice collect" finds: a namespace with everything in it, or the account of a binding, with its
rights. It shows them and asks first; without a terminal it needs --yes. Also while a restored hub holds what it does not
know. An object that got an owner, or was replaced, in the meantime is left.`,
		Example: `  sluice remnant remove eu/sluice-1f0c6ae0b7c54c5a9d3e8f7766554433221100ff`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := found.open(cmd, flags); err != nil {
				return err
			}
			report, unread := found.collector.Collect(cmd.Context(), false)
			var chosen []kube.Remnant
			for _, arg := range args {
				with := slices.DeleteFunc(slices.Clone(report.Remnants), func(r kube.Remnant) bool { return nameOf(&r) != arg })
				if len(with) == 0 {
					return errors.Join(fmt.Errorf("remove %s: no such object is found: `sluice collect` lists them", arg), unread)
				}
				chosen = append(chosen, with...)
			}
			if err := confirmRemoval(cmd, chosen, confirmed.yes); err != nil {
				return err
			}
			removed, err := found.collector.Remove(cmd.Context(), chosen)
			count := 0
			for _, r := range removed {
				if r.Removed || r.IsEnding() {
					count++
					fmt.Fprintf(cmd.OutOrStdout(), "%s %s is being removed\n", r.Kind, nameOf(&r))
				}
			}
			if left := len(chosen) - count; left > 0 && err == nil {
				err = fmt.Errorf("%d of %d objects were left: they have an owner or have changed since; look at `sluice collect` again", left, len(chosen))
			}
			return err
		},
	}
	found.bind(cmd)
	confirmed.bind(cmd)
	return cmd
}

// confirmRemoval shows what is to be removed, and asks.
func confirmRemoval(cmd *cobra.Command, chosen []kube.Remnant, yes bool) error {
	if yes {
		return nil
	}
	for i := range chosen {
		r := &chosen[i]
		fmt.Fprintf(cmd.ErrOrStderr(), "%s %s of %s, %s, %s old\n", r.Kind, nameOf(r), r.Owner, sizeOf(r.Size), age(r.Created))
	}
	if !onTerminal(cmd) {
		return errors.New("nothing was removed: --yes confirms it where nobody can be asked")
	}
	if !asked(cmd, "Remove this, with everything in it?") {
		return errors.New("nothing was removed")
	}
	return nil
}

// nameOf returns the name by which an operator chooses an object.
func nameOf(r *kube.Remnant) string {
	if r.Kind == "Namespace" {
		return r.Cluster + "/" + r.Name
	}
	return r.Cluster + "/" + r.Namespace + "/" + r.Name
}
