package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/market"
	"github.com/sluice-dev/sluice/internal/pages"
)

// removal is a command that removes a resource of the hub by its name.
type removal struct {
	// noun of the resource in messages; short and long are the help.
	noun, short, long string
	object            client.Object
	// find finds it by what the user calls it; nil finds it by its name.
	find func(ctx context.Context, c client.Client, namespace, name string) (client.Object, error)
	// done is said afterwards; empty means "removed".
	done string
	// first is done before, and may refuse; nil if there is nothing to be done.
	first func(ctx context.Context, c client.Client, namespace, name string) error
}

func (r removal) command(hub *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: r.short, Long: r.long, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			gone := r.object.DeepCopyObject().(client.Object)
			if r.find != nil {
				gone, err = r.find(cmd.Context(), c, hub.namespace, args[0])
			} else {
				err = c.Get(cmd.Context(), client.ObjectKey{Namespace: hub.namespace, Name: args[0]}, gone)
			}
			if err == nil && r.first != nil {
				err = r.first(cmd.Context(), c, hub.namespace, args[0])
			}
			if err == nil {
				err = c.Delete(cmd.Context(), gone)
			}
			if err != nil {
				return fmt.Errorf("%s %s: %w", r.noun, args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s\n", r.noun, args[0], cmp.Or(r.done, "removed"))
			return err
		},
	}
}

// findOffering returns the only offering with a name or, if several have it or none has, the one whose resource has it.
func findOffering(ctx context.Context, c client.Client, namespace, name string) (client.Object, error) {
	var resource client.Object
	var named []client.Object
	err := pages.Each(ctx, c, &v1alpha1.ServiceOfferingList{}, func(o client.Object) error {
		if o.GetName() == name {
			resource = o
		}
		if o.(*v1alpha1.ServiceOffering).Spec.Name == name {
			named = append(named, o)
		}
		return nil
	}, client.InNamespace(namespace))
	switch {
	case err != nil:
		return nil, err
	case len(named) == 1:
		return named[0], nil
	case resource != nil:
		return resource, nil
	case len(named) == 0:
		return nil, errors.New("there is none of this name; `sluice catalog list` shows them all")
	}
	var names []string
	for _, o := range named {
		names = append(names, o.GetName())
	}
	return nil, fmt.Errorf("%d have this name: remove one by the name of its resource: %s", len(named), some(names))
}

// leaveMarket refuses to remove a provider while clusters or offerings are its own, and removes the policies that it has
// written.
func leaveMarket(ctx context.Context, c client.Client, namespace, provider string) error {
	var clusters, offerings []string
	var own []*v1alpha1.PlacementPolicy
	look := func(list client.ObjectList) error {
		return pages.Each(ctx, c, list, func(o client.Object) error {
			switch o := o.(type) {
			case *v1alpha1.MemberCluster:
				if o.Spec.Provider == provider {
					clusters = append(clusters, o.Name)
				}
			case *v1alpha1.ServiceOffering:
				if o.Spec.Provider == provider {
					offerings = append(offerings, o.Spec.Name)
				}
			case *v1alpha1.PlacementPolicy:
				if o.Spec.Provider == provider && market.IsOwn(o) {
					own = append(own, o)
				}
			}
			return nil
		}, client.InNamespace(namespace))
	}
	err := errors.Join(look(&v1alpha1.MemberClusterList{}), look(&v1alpha1.ServiceOfferingList{}), look(&v1alpha1.PlacementPolicyList{}))
	switch {
	case err != nil:
		return err
	case len(clusters) > 0:
		return fmt.Errorf("its member clusters are still there: %s; `sluice cluster remove` removes them", some(clusters))
	case len(offerings) > 0:
		return fmt.Errorf("its offerings are still there: %s; `sluice catalog remove` removes them", some(offerings))
	}
	for _, policy := range own {
		if err := client.IgnoreNotFound(c.Delete(ctx, policy)); err != nil {
			return fmt.Errorf("remove its policy %s: %w", policy.Name, err)
		}
	}
	return nil
}

var (
	addOnRemoval  = removal{noun: "add-on", short: "Remove a package of an add-on; existing clusters keep the add-on", object: &v1alpha1.AddOnPackage{}}
	issuerRemoval = removal{
		noun: "trusted issuer", short: "Trust an organisation no more", object: &v1alpha1.TrustedIssuer{},
		long: "Trust an organisation no more. The claims that only its credentials prove end with the next look at each cluster,\nwithin minutes; instances stay where they are, and policies count from the next order on.",
	}
	offeringRemoval = removal{
		noun: "offering", short: "Sell a service offering no more", object: &v1alpha1.ServiceOffering{}, find: findOffering, done: "sold no more",
		long: "Sell a service offering no more, from now on. What was sold stays, and the offering goes with its last instance.",
	}
	providerRemoval = removal{
		noun: "provider", short: "Let a provider present credentials and sell no more", object: &v1alpha1.Provider{}, first: leaveMarket,
		long: "Let a provider present credentials and sell no more. It is refused while member clusters or offerings are the provider's.\nIts tokens and invitations end, and the policies that it has written are removed.",
	}
)
