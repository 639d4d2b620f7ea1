package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/registration"
)

// unopened returns the resources of which a keyset lacks the key of something sealed, and how many have something sealed.
// It reads page by page; an empty namespace means all.
func unopened(ctx context.Context, reader client.Reader, namespace string, keys *seal.Keyset) (lacking []string, sealed int, err error) {
	for _, of := range []struct {
		what string
		list client.ObjectList
	}{
		{"identity", &v1alpha1.IdentityList{}}, {"cluster", &v1alpha1.MemberClusterList{}}, {"sink", &v1alpha1.EventSinkList{}},
		{"instance", &v1alpha1.ServiceInstanceList{}}, {"binding", &v1alpha1.ServiceBindingList{}},
	} {
		err := pages.Each(ctx, reader, of.list, func(o client.Object) error {
			has, lacks := false, false
			for _, value := range sealedIn(o) {
				has = has || len(value) > 0
				lacks = lacks || len(value) > 0 && !keys.Has(value)
			}
			if has {
				sealed++
			}
			if lacks {
				lacking = append(lacking, of.what+" "+o.GetName())
			}
			return nil
		}, client.InNamespace(namespace))
		if err != nil {
			return nil, 0, fmt.Errorf("read what is sealed: %w", err)
		}
	}
	return lacking, sealed, nil
}

// sealedIn returns what is sealed in a resource; empty values are not sealed.
func sealedIn(o client.Object) (values [][]byte) {
	switch o := o.(type) {
	case *v1alpha1.Identity:
		for _, key := range o.Spec.Keys[:min(1, len(o.Spec.Keys))] { // older ones sign nothing
			values = append(values, key.SealedPrivate)
		}
	case *v1alpha1.MemberCluster:
		for _, holder := range registration.Holders(o) {
			values = append(values, holder.Spec.Access.SealedKubeconfig, holder.Spec.Access.SealedCredentials)
		}
	case *v1alpha1.EventSink:
		values = append(values, o.Spec.Key.Sealed)
	case *v1alpha1.ServiceInstance:
		values = append(workload.SealedParameters(o.Spec.Desired.Raw()), o.Status.SealedSecrets)
		if o.Status.Delivered != nil {
			values = append(values, workload.SealedParameters(o.Status.Delivered.State.Raw())...)
		}
	case *v1alpha1.ServiceBinding:
		values = append(workload.SealedParameters(o.Spec.Raw()), o.Status.SealedCredentials, o.Status.SealedSecrets)
	}
	return values
}

// keysFit returns an error with the remedy if a hub has something sealed of which a keyset lacks the key.
func keysFit(ctx context.Context, config *rest.Config, namespace string, keys *seal.Keyset) error {
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	lacking, _, err := unopened(ctx, c, namespace, keys)
	if err == nil && len(lacking) > 0 {
		err = fmt.Errorf("the keyset does not open what is sealed in %s: name the hub's keyset with --keyset; if that is lost, make anew what it sealed (docs/operating.md#keys)", some(lacking))
	}
	return err
}
