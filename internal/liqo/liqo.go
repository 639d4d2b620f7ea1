// Package liqo has what Sluice knows of Liqo (v1.2) beside its resource types: the names and
// labels by which its parts find each other, and a cluster's identity in Liqo.
//
// It makes no peering; placement/liqo does.
package liqo

import (
	"context"
	"fmt"

	authenticationv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Scheme has the types of Kubernetes and of Liqo.
var Scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, authenticationv1beta1.AddToScheme, liqov1beta1.AddToScheme,
		ipamv1alpha1.AddToScheme, networkingv1beta1.AddToScheme, offloadingv1beta1.AddToScheme,
	} {
		utilruntime.Must(add(Scheme))
	}
}

// DefaultNamespace is the namespace of Liqo unless the operator configures another.
const DefaultNamespace = "liqo"

// Class of the ResourceSlices that Sluice sells; it alone accepts or denies them.
const Class authenticationv1beta1.ResourceSliceClass = "sluice"

// TenantNamespace returns the name of the namespace that a cluster keeps for another one, by
// the other's cluster ID. Objects of which that namespace has only one are named after the ID.
func TenantNamespace(remoteID string) string { return "liqo-tenant-" + remoteID }

// Network reads a cluster's identity in Liqo. Its error names what is missing.
func Network(ctx context.Context, c client.Reader, namespace string, modules []v1alpha1.LiqoModule) (*v1alpha1.LiqoNetwork, error) {
	var identities corev1.ConfigMapList
	err := c.List(ctx, &identities, client.InNamespace(namespace), client.MatchingLabels{consts.K8sAppNameKey: consts.ClusterIDConfigMapNameLabelValue})
	if err != nil {
		return nil, fmt.Errorf("read Liqo's cluster ID in namespace %s: %w", namespace, err)
	}
	if len(identities.Items) != 1 || identities.Items[0].Data[consts.ClusterIDConfigMapKey] == "" {
		return nil, fmt.Errorf("read Liqo's cluster ID in namespace %s: there are %d ConfigMaps with one: Liqo is not installed there", namespace, len(identities.Items))
	}
	id := identities.Items[0].Data[consts.ClusterIDConfigMapKey]
	if wrong := validation.IsDNS1123Label(id); wrong != nil {
		return nil, fmt.Errorf("read Liqo's cluster ID in namespace %s: %.70q: %s", namespace, id, wrong[0])
	}
	network := &v1alpha1.LiqoNetwork{ClusterID: id}
	if !v1alpha1.HasModule(modules, v1alpha1.ModuleNetworking) {
		return network, nil
	}
	var networks ipamv1alpha1.NetworkList
	if err := c.List(ctx, &networks, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("read Liqo's networks in namespace %s: %w", namespace, err)
	}
	for i := range networks.Items {
		n := &networks.Items[i]
		switch consts.NetworkType(n.Labels[consts.NetworkTypeLabelKey]) {
		case consts.NetworkTypePodCIDR:
			network.PodCIDRs = append(network.PodCIDRs, string(n.Status.CIDR))
		case consts.NetworkTypeExternalCIDR:
			network.ExternalCIDR = string(n.Status.CIDR)
		}
	}
	if len(network.PodCIDRs) == 0 || network.ExternalCIDR == "" {
		return nil, fmt.Errorf("read Liqo's networks in namespace %s: its pod or external CIDR is not there yet: see whether its IPAM runs", namespace)
	}
	return network, nil
}
