package bindings

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
)

// An address is an IP resource of Liqo in the instance's namespace. Liqo takes an address
// from the cluster's external range and routes it to a Service. Each address belongs to one
// binding and is deleted with that binding, independently of other bindings.

// addressName returns the name of a binding's address for a Service with a cluster IP.
// Another cluster IP gets another address, because Liqo cannot change the target of an
// address. The name is short because Liqo names firewall rules after it.
func addressName(binding, service, clusterIP string) string {
	sum := sha256.Sum256([]byte(binding + "/" + service + "/" + clusterIP))
	return "sluice-" + hex.EncodeToString(sum[:10])
}

// addresses lists Liqo's addresses in the instance's namespace, for pods and for Services.
func (l *lookup) addresses(ctx context.Context, cluster string) ([]liqo.Address, error) {
	c, err := l.member(ctx, cluster)
	if err != nil {
		return nil, err
	}
	addresses, err := liqo.Addresses(ctx, c, client.InNamespace(l.namespace))
	if err != nil {
		return nil, &unreadError{cluster: cluster, what: "addresses", err: err}
	}
	return addresses, nil
}

// publish makes the binding's addresses on a cluster match the Services: it creates missing
// ones and deletes others. It returns the addresses that Liqo has given so far, by Service.
func (l *lookup) publish(ctx context.Context, cluster string, c client.Client, services []ready) (map[string]string, error) {
	if !slices.Contains(l.binding.Status.AddressClusters, cluster) {
		return nil, fmt.Errorf("binding %s has not recorded that it may have addresses on %s", l.binding.Name, cluster)
	}
	there, err := l.addresses(ctx, cluster)
	if err != nil {
		return nil, err
	}
	there = slices.DeleteFunc(there, func(a liqo.Address) bool { return a.Labels[v1alpha1.LabelBinding] != l.binding.Name })
	given, wanted := map[string]string{}, map[string]bool{}
	for i := range services {
		s := &services[i]
		name := addressName(l.binding.Name, s.Name, s.Spec.ClusterIP)
		wanted[name] = true
		k := slices.IndexFunc(there, func(a liqo.Address) bool { return a.Name == name })
		switch {
		case k < 0:
			if err := l.createAddress(ctx, c, name, s); err != nil {
				return nil, &unreadError{cluster: cluster, what: "addresses", err: err}
			}
		case !there[k].IsLeaving():
			given[s.Name] = there[k].Given()
		}
	}
	for _, a := range there {
		if !wanted[a.Name] && !a.IsLeaving() {
			if err := deleteAddress(ctx, c, a); err != nil {
				return nil, &unreadError{cluster: cluster, what: "addresses", err: err}
			}
		}
	}
	return given, nil
}

// createAddress is idempotent, because the name contains everything that can differ.
func (l *lookup) createAddress(ctx context.Context, c client.Client, name string, s *ready) error {
	owner := &account{Controller: l.Controller, binding: l.binding}
	object := metav1.ObjectMeta{Namespace: l.namespace, Name: name, Labels: owner.labels(), Annotations: owner.annotations()}
	object.Annotations[annotationService] = s.Name
	err := c.Create(ctx, liqo.NewAddress(object, s.Spec.ClusterIP).IP, client.FieldOwner(v1alpha1.FieldManager))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create an address for Service %s: %w", s.Name, err)
	}
	return nil
}

// annotationService on an address names the Service behind it, for human readers.
const annotationService = "sluice.dev/service"

func deleteAddress(ctx context.Context, c client.Client, a liqo.Address) error {
	err := c.Delete(ctx, a.IP)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the address %s: %w", a.Name, err)
	}
	return nil
}

// withdraw deletes the binding's addresses on a cluster. It returns nil when none remains,
// and *pendingError while Liqo keeps one.
func (a *account) withdraw(ctx context.Context) error {
	c, err := a.connection.Typed(liqo.Scheme)
	if err != nil {
		return err
	}
	list := func() ([]liqo.Address, error) {
		addresses, err := liqo.Addresses(ctx, c, client.InNamespace(a.namespace), client.MatchingLabels{v1alpha1.LabelBinding: a.binding.Name, v1alpha1.LabelHub: a.Hub})
		if meta.IsNoMatchError(err) {
			return nil, nil // Liqo was removed, and its resources with it
		}
		return addresses, err
	}
	addresses, err := list()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	if len(addresses) == 0 {
		return nil
	}
	for _, one := range addresses {
		if err := deleteAddress(ctx, c, one); err != nil {
			return err
		}
	}
	if addresses, err = list(); err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	if len(addresses) == 0 {
		return nil
	}
	return &pendingError{fmt.Sprintf("Liqo on %s has not released %d addresses yet", a.shown, len(addresses)), goneCheck}
}
