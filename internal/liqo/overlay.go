package liqo

import (
	"context"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// This file is what bindings ask of the overlay network: whether two clusters are connected, as
// which addresses one sees the other, and an address for a Service. A part of another network
// would answer the same questions.

// Connected is the state of a gateway that is connected.
const Connected = string(networkingv1beta1.Connected)

// Connection returns the state of a cluster's gateway to another one, which is given by its
// cluster ID; "" if there is no gateway.
func Connection(ctx context.Context, c client.Reader, remoteID string) (state string, err error) {
	var list networkingv1beta1.ConnectionList
	if err := c.List(ctx, &list, client.InNamespace(TenantNamespace(remoteID))); err != nil || len(list.Items) == 0 {
		return "", err
	}
	state = string(networkingv1beta1.Connecting)
	for i := range list.Items {
		switch value := string(list.Items[i].Status.Value); value {
		case Connected:
			return Connected, nil
		case "":
		default:
			state = value
		}
	}
	return state, nil
}

// Ranges are the address ranges (CIDR) of another cluster: its own, and in the same order those as
// which a cluster sees them.
type Ranges struct{ Own, Seen []string }

// RemoteRanges returns the ranges of another cluster's pods, and of its addresses for other
// clusters, as a cluster sees them. It returns false while the cluster has not chosen them, and a
// NotFound error if it does not know the other one.
func RemoteRanges(ctx context.Context, c client.Reader, remoteID string) (pods, addresses Ranges, chosen bool, err error) {
	var configuration networkingv1beta1.Configuration
	if err := c.Get(ctx, client.ObjectKey{Namespace: TenantNamespace(remoteID), Name: remoteID}, &configuration); err != nil {
		return Ranges{}, Ranges{}, false, err
	}
	finished := meta.FindStatusCondition(configuration.Status.Conditions, networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured)
	if finished == nil || finished.Status != metav1.ConditionTrue || finished.ObservedGeneration != configuration.Generation || configuration.Status.Remote == nil {
		return Ranges{}, Ranges{}, false, nil // Liqo has not processed the present generation
	}
	own, seen := configuration.Spec.Remote.CIDR, configuration.Status.Remote.CIDR
	return Ranges{texts(own.Pod), texts(seen.Pod)}, Ranges{texts(own.External), texts(seen.External)}, true, nil
}

func texts(cidrs []networkingv1beta1.CIDR) []string {
	var out []string
	for _, cidr := range cidrs {
		out = append(out, string(cidr))
	}
	return out
}

// Address is an IP resource: an address from the cluster's external range that leads to a target
// in the cluster, for peered clusters.
type Address struct{ *ipamv1alpha1.IP }

// NewAddress returns an address for a target, to be created.
func NewAddress(object metav1.ObjectMeta, target string) Address {
	return Address{&ipamv1alpha1.IP{ObjectMeta: object, Spec: ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(target)}}}
}

// Target returns the address in the cluster to which it leads.
func (a Address) Target() string { return string(a.Spec.IP) }

// Given returns the address for peered clusters; "" while Liqo has given none.
func (a Address) Given() string { return string(a.Status.IP) }

// IsLeaving reports whether the address is being deleted.
func (a Address) IsLeaving() bool { return !a.DeletionTimestamp.IsZero() }

// Addresses lists addresses. The error is meta.NoKindMatchError where Liqo is not installed.
func Addresses(ctx context.Context, c client.Reader, options ...client.ListOption) ([]Address, error) {
	var list ipamv1alpha1.IPList
	if err := c.List(ctx, &list, options...); err != nil {
		return nil, err
	}
	var addresses []Address
	for i := range list.Items {
		addresses = append(addresses, Address{&list.Items[i]})
	}
	return addresses, nil
}
