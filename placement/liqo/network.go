package liqo

import (
	"context"
	"fmt"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The gateway settings that Liqo's own tool uses.
const (
	gatewayPort    = 51840
	gatewayMTU     = 1340
	serverTemplate = "wireguard-server"
	clientTemplate = "wireguard-client"
)

// connect makes the network between two clusters: each gets the other's address ranges and the
// key of its gateway, and one gateway, the client, connects to the other, the server. It
// returns nil once the gateways are connected.
//
// On a joined side, its owner has created the objects (Invitation); then the other side is the
// server.
func connect(ctx context.Context, server, client *side) error {
	if err := configure(ctx, server, client); err != nil {
		return err
	}
	serverKey, endpoint, err := server.serve(ctx)
	if err != nil {
		return err
	}
	clientKey := []byte(nil)
	if joined := client.joined(); joined != nil {
		clientKey = joined.PublicKey
	} else if clientKey, err = client.call(ctx, endpoint); err != nil {
		return err
	}
	for _, exchange := range []struct {
		on  *side
		key []byte
	}{{server, clientKey}, {client, serverKey}} {
		if exchange.on.joined() != nil {
			continue
		}
		if err := exchange.on.trust(ctx, exchange.key); err != nil {
			return err
		}
	}
	return first(server.connected(ctx), client.connected(ctx))
}

// configure gives each cluster the other's address ranges, and waits until Liqo has remapped
// those that overlap.
func configure(ctx context.Context, sides ...*side) error {
	var failures []error // all at once: none waits for another
	for _, s := range sides {
		if s.joined() == nil {
			failures = append(failures, s.configure(ctx))
		}
	}
	return first(failures...)
}

func (s *side) configure(ctx context.Context) error {
	now := s.configuration()
	if err := s.apply(ctx, now); err != nil {
		return err
	}
	condition := meta.FindStatusCondition(now.Status.Conditions, networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured)
	if now.Status.Remote != nil && (condition == nil || condition.Status == metav1.ConditionTrue) {
		return nil
	}
	detail := "Liqo has not mapped the address ranges of " + s.remote.ClusterID + " yet: see whether its IPAM runs"
	if condition != nil && condition.Message != "" {
		detail = condition.Message
	}
	return s.pending("Configuration "+now.Name, detail)
}

func (s *side) configuration() *networkingv1beta1.Configuration {
	c := &networkingv1beta1.Configuration{ObjectMeta: s.meta(s.remote.ClusterID)}
	for _, cidr := range s.remote.PodCIDRs {
		c.Spec.Remote.CIDR.Pod = append(c.Spec.Remote.CIDR.Pod, networkingv1beta1.CIDR(cidr))
	}
	c.Spec.Remote.CIDR.External = []networkingv1beta1.CIDR{networkingv1beta1.CIDR(s.remote.ExternalCIDR)}
	return c
}

// serve creates the gateway server, and returns its key and its address.
func (s *side) serve(ctx context.Context) (key []byte, endpoint *networkingv1beta1.EndpointStatus, err error) {
	service := corev1.ServiceTypeLoadBalancer
	if l := s.cluster.Spec.Liqo; l != nil && l.GatewayService != "" {
		service = l.GatewayService
	}
	now := &networkingv1beta1.GatewayServer{
		ObjectMeta: s.meta(s.remote.ClusterID),
		Spec: networkingv1beta1.GatewayServerSpec{
			MTU: gatewayMTU, Endpoint: networkingv1beta1.Endpoint{Port: gatewayPort, ServiceType: service},
			ServerTemplateRef: s.template("WgGatewayServerTemplate", serverTemplate),
		},
	}
	if err := s.apply(ctx, now); err != nil {
		return nil, nil, err
	}
	object := "GatewayServer " + now.Name
	if now.Status.Endpoint == nil || len(now.Status.Endpoint.Addresses) == 0 || now.Status.Endpoint.Port == 0 {
		return nil, nil, s.pending(object, fmt.Sprintf("its Service, of type %s, has no address yet", service))
	}
	key, err = s.key(ctx, object, now.Status.SecretRef)
	return key, now.Status.Endpoint, err
}

// call creates the gateway client, and returns its key.
func (s *side) call(ctx context.Context, endpoint *networkingv1beta1.EndpointStatus) (key []byte, err error) {
	now := &networkingv1beta1.GatewayClient{
		ObjectMeta: s.meta(s.remote.ClusterID),
		Spec: networkingv1beta1.GatewayClientSpec{
			MTU: gatewayMTU, Endpoint: *endpoint, ClientTemplateRef: s.template("WgGatewayClientTemplate", clientTemplate),
		},
	}
	if err := s.apply(ctx, now); err != nil {
		return nil, err
	}
	return s.key(ctx, "GatewayClient "+now.Name, now.Status.SecretRef)
}

func (s *side) template(kind, name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: networkingv1beta1.GroupVersion.String(), Kind: kind, Namespace: s.liqoNamespace(), Name: name}
}

// key returns the public key of a gateway, which Liqo keeps in a Secret beside it.
func (s *side) key(ctx context.Context, gateway string, ref *corev1.ObjectReference) ([]byte, error) {
	if ref == nil || ref.Name == "" {
		return nil, s.pending(gateway, "Liqo has not created its keys yet: see whether its controller manager runs")
	}
	var secret corev1.Secret
	if err := s.get(ctx, ref.Name, &secret); err != nil {
		return nil, err
	}
	key := secret.Data[consts.PublicKeyField]
	if len(key) == 0 {
		return nil, s.pending(gateway, "Liqo has not created its keys yet")
	}
	return key, nil
}

// trust stores the other gateway's key.
func (s *side) trust(ctx context.Context, key []byte) error {
	meta := s.meta(s.remote.ClusterID)
	meta.Labels[consts.GatewayResourceLabel] = consts.GatewayResourceLabelValue
	return s.apply(ctx, &networkingv1beta1.PublicKey{ObjectMeta: meta, Spec: networkingv1beta1.PublicKeySpec{PublicKey: key}})
}

// connected returns nil while this side's gateway reports that it reaches the other gateway. It
// sets the latency of the side.
func (s *side) connected(ctx context.Context) error {
	var list networkingv1beta1.ConnectionList
	if err := s.List(ctx, &list, inNamespace(s.namespace())); err != nil {
		return s.failed(fmt.Errorf("list Connections in %s: %w", s.namespace(), err))
	}
	for i := range list.Items {
		c := &list.Items[i]
		if c.Status.Value != networkingv1beta1.Connected {
			return s.pending("Connection "+c.Name, fmt.Sprintf("is %q: see whether UDP reaches the other gateway", c.Status.Value))
		}
		s.latency = latencyOf(c)
	}
	if len(list.Items) == 0 {
		return s.pending("Connection to "+s.remote.ClusterID, "its gateway has not started yet")
	}
	return nil
}

// disconnect removes the network from one side. It returns nil once all of it is gone.
func (s *side) disconnect(ctx context.Context) error {
	if s.ending {
		return nil
	}
	name := s.remote.ClusterID
	for _, o := range []object{
		&networkingv1beta1.GatewayClient{}, &networkingv1beta1.GatewayServer{},
		&networkingv1beta1.PublicKey{}, &networkingv1beta1.Configuration{},
	} {
		if err := s.gone(ctx, name, o); err != nil {
			return err
		}
	}
	return nil
}
