package liqotest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/liqo"
)

// Definitions of the resources of Liqo that Sluice knows.
var Definitions = []string{
	"authentication.liqo.io_identities", "authentication.liqo.io_tenants", "authentication.liqo.io_resourceslices", "authentication.liqo.io_renews", "core.liqo.io_foreignclusters",
	"ipam.liqo.io_ips", "ipam.liqo.io_networks", "networking.liqo.io_configurations", "networking.liqo.io_connections",
	"networking.liqo.io_gatewayclients", "networking.liqo.io_gatewayservers", "networking.liqo.io_publickeies",
	"offloading.liqo.io_namespacemaps", "offloading.liqo.io_namespaceoffloadings", "offloading.liqo.io_shadowpods", "offloading.liqo.io_virtualnodes",
}

// Cluster is a test cluster as Liqo knows it.
type Cluster struct {
	// Admin is a client of its administrator. Its scheme has the types of Liqo.
	Admin client.Client
	// ID of the cluster in Liqo.
	ID string
}

// Identify creates what an installation of Liqo leaves in a namespace, as far as Sluice reads it: the
// cluster's identity, its keys, and its networks.
func (c Cluster) Identify(t testing.TB, namespace string) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "clusterid", Labels: map[string]string{consts.K8sAppNameKey: consts.ClusterIDConfigMapNameLabelValue}},
			Data:       map[string]string{consts.ClusterIDConfigMapKey: c.ID},
		},
	} {
		must(client.IgnoreAlreadyExists(c.Admin.Create(t.Context(), o)))
	}
	must(authentication.InitClusterKeys(t.Context(), c.Admin, namespace, false))
	for kind, cidr := range map[consts.NetworkType]string{consts.NetworkTypePodCIDR: "10.128.0.0/16", consts.NetworkTypeExternalCIDR: "10.70.0.0/16"} {
		n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(kind), Labels: map[string]string{consts.NetworkTypeLabelKey: string(kind)}}}
		n.Spec.CIDR = networkingv1beta1.CIDR(cidr)
		must(c.Admin.Create(t.Context(), n))
		n.Status.CIDR = networkingv1beta1.CIDR(cidr)
		must(c.Admin.Status().Update(t.Context(), n))
	}
}

// Network stands in for those of Liqo's controllers that connect two clusters: it writes addresses and
// keys of gateways, connections once both keys are known, and the addresses of Services. It moves no
// packets.
type Network struct{ given atomic.Int32 }

// Pass does on one cluster everything that is possible; what fails is repeated by the next pass.
func (n *Network) Pass(ctx context.Context, here, there Cluster) {
	namespace := liqo.TenantNamespace(there.ID)
	key := client.ObjectKey{Namespace: namespace, Name: there.ID}
	n.configure(ctx, here, there, key)
	n.giveAddresses(ctx, here)
	gateway := ""
	var server networkingv1beta1.GatewayServer
	if here.Admin.Get(ctx, key, &server) == nil {
		gateway = "gw-" + server.Name
		if server.Status.Endpoint == nil {
			server.Status.Endpoint = &networkingv1beta1.EndpointStatus{Addresses: []string{"192.0.2.1"}, Port: 32000}
			server.Status.SecretRef = here.keys(ctx, namespace, gateway)
			_ = here.Admin.Status().Update(ctx, &server)
		}
	}
	var caller networkingv1beta1.GatewayClient
	if here.Admin.Get(ctx, key, &caller) == nil {
		gateway = "gw-" + caller.Name
		if caller.Status.SecretRef == nil {
			caller.Status.SecretRef = here.keys(ctx, namespace, gateway)
			_ = here.Admin.Status().Update(ctx, &caller)
		}
	}
	connection := &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gw-" + there.ID}}
	trusted := here.Admin.Get(ctx, key, &networkingv1beta1.PublicKey{}) == nil
	exists := here.Admin.Get(ctx, client.ObjectKeyFromObject(connection), connection) == nil
	if gateway == "" || !trusted {
		if exists {
			_ = here.Admin.Delete(ctx, connection)
		}
		return
	}
	if !exists {
		connection.Spec.Type = networkingv1beta1.ConnectionTypeServer
		if here.Admin.Create(ctx, connection) != nil {
			return
		}
	}
	if connection.Status.Value == "" {
		connection.Status.Value = networkingv1beta1.Connected
		connection.Status.Latency.Timestamp = metav1.Now()
		_ = here.Admin.Status().Update(ctx, connection)
	}
}

// configure maps the other cluster's external range to 10.71.0.0/16.
func (n *Network) configure(ctx context.Context, here, there Cluster, key client.ObjectKey) {
	var configuration networkingv1beta1.Configuration
	if here.Admin.Get(ctx, key, &configuration) != nil || !configuration.DeletionTimestamp.IsZero() {
		return
	}
	known := &liqov1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: there.ID}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(there.ID)}}
	if here.Admin.Get(ctx, client.ObjectKeyFromObject(known), known) != nil {
		_ = here.Admin.Create(ctx, known)
	}
	if configuration.Status.Remote == nil {
		configuration.Status.Remote = configuration.Spec.Remote.DeepCopy()
		configuration.Status.Remote.CIDR.External = []networkingv1beta1.CIDR{"10.71.0.0/16"}
		meta.SetStatusCondition(&configuration.Status.Conditions, metav1.Condition{
			Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue, Reason: "Configured", ObservedGeneration: configuration.Generation,
		})
		_ = here.Admin.Status().Update(ctx, &configuration)
	}
}

// giveAddresses gives each IP an address of 10.70.0.0/16.
func (n *Network) giveAddresses(ctx context.Context, here Cluster) {
	var addresses ipamv1alpha1.IPList
	if here.Admin.List(ctx, &addresses) != nil {
		return
	}
	for i := range addresses.Items {
		if ip := &addresses.Items[i]; ip.Status.IP == "" {
			given := n.given.Add(1)
			ip.Status.IP = networkingv1beta1.IP(fmt.Sprintf("10.70.%d.%d", given/250, given%250+1))
			ip.Status.CIDR = "10.70.0.0/16"
			_ = here.Admin.Status().Update(ctx, ip)
		}
	}
}

func (c Cluster) keys(ctx context.Context, namespace, gateway string) *corev1.ObjectReference {
	_ = c.Admin.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: gateway},
		Data:       map[string][]byte{consts.PublicKeyField: []byte("key of " + c.ID)},
	})
	return &corev1.ObjectReference{Namespace: namespace, Name: gateway}
}
