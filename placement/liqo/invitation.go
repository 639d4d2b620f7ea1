package liqo

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// Kinds of the two documents by which a cluster joins without its owner sharing an administrator's
// access.
const (
	KindInvitation = "PeeringInvitation"
	KindAnswer     = "PeeringAnswer"
)

// Invitation asks the owner of a cluster to set up its side of a peering. It holds no secrets.
type Invitation struct {
	metav1.TypeMeta `json:",inline"`
	// Cluster is the invited cluster's name in Sluice, ClusterID its ID in Liqo.
	Cluster   string `json:"cluster"`
	ClusterID string `json:"clusterID"`
	// Role of the invited cluster: provider or consumer for the inviting one.
	Role v1alpha1.PeeringSide `json:"role"`
	// Nonce is signed by a consumer to get the right to request resources.
	Nonce []byte `json:"nonce,omitempty"`
	// With is the inviting member cluster, Network its identity in Liqo, and Gateway the address
	// of its gateway.
	With    string                  `json:"with"`
	Network v1alpha1.LiqoNetwork    `json:"network"`
	Gateway v1alpha1.GatewayAddress `json:"gateway"`
	// Hub is the ID of the inviting Sluice, the label of all objects that are created.
	Hub string `json:"hub"`
}

// InvitationOf returns the invitation of a peering. While it is not ready the error names what
// is missing.
func InvitationOf(peering *v1alpha1.Peering) (*Invitation, error) {
	status, invited := &peering.Status, peering.Spec.Invited
	if invited == nil {
		return nil, errors.New("there is no invitation for it")
	}
	guest, host, network := peering.Spec.Provider, peering.Spec.Consumer, status.Consumer
	if invited.Role == v1alpha1.SideConsumer {
		guest, host, network = host, guest, status.Provider
	}
	if network == nil || status.Gateway == nil {
		return nil, errors.New("the gateway that is to be called is not ready yet")
	}
	return &Invitation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: KindInvitation},
		Cluster:  guest, ClusterID: invited.ClusterID, Role: invited.Role, Nonce: status.Nonce,
		With: host, Network: *network, Gateway: *status.Gateway, Hub: status.HubID,
	}, nil
}

// Answer is the reply of the cluster's owner. It holds credentials: keep it secret.
type Answer struct {
	metav1.TypeMeta `json:",inline"`
	// Cluster, With and Role are those of the invitation.
	Cluster string               `json:"cluster"`
	With    string               `json:"with"`
	Role    v1alpha1.PeeringSide `json:"role"`
	// Network is the cluster's identity in Liqo, PublicKey its gateway's key.
	Network   v1alpha1.LiqoNetwork `json:"network"`
	PublicKey []byte               `json:"publicKey"`
	// Kubeconfig lets Sluice read the cluster (JoinedRules), and judge slices on a provider
	// (judgeRules) or request them for a consumer (askRules).
	Kubeconfig string `json:"kubeconfig"`
	// Capacity that the owner of a provider's cluster sells; empty means that of its nodes, which
	// Sluice may then read.
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Identity lets the inviting cluster request resources from a provider (peerRules).
	Identity string `json:"identity,omitempty"`
	// Handshake proves a consumer's key to the provider's Liqo.
	Handshake *v1alpha1.LiqoHandshake `json:"handshake,omitempty"`
}

const (
	// acceptPatience limits the wait for Liqo on the accepting cluster.
	acceptPatience = 2 * time.Minute
	// joinedRole is the Role of Sluice's account in the tenant namespace of a joined cluster.
	joinedRole = "sluice-joined"
)

// AcceptOptions describe the accepting cluster.
type AcceptOptions struct {
	// LiqoNamespace is the namespace of Liqo there.
	LiqoNamespace string
	// Server is the URL at which Sluice and the inviting cluster reach the API server; empty means
	// the administrator's.
	Server string
	// Capacity of a provider's cluster that is for sale. Empty means what its nodes have; otherwise Sluice
	// gets no right to read nodes and pods.
	Capacity corev1.ResourceList
	// Progress is called with the current step.
	Progress func(string)
}

// Accept sets up a cluster's side of the peering of an invitation, with its administrator's
// credentials, and returns the answer. It is idempotent: a repeat updates the objects and keeps
// the credentials. It blocks until Liqo has done its part there, at most two minutes.
func Accept(ctx context.Context, admin *rest.Config, invitation *Invitation, o AcceptOptions) (*Answer, error) {
	if err := invitation.validate(); err != nil {
		return nil, err
	}
	admin = rest.CopyConfig(admin)
	if err := rest.LoadTLSFiles(admin); err != nil {
		return nil, fmt.Errorf("read the administrator's CA file: %w", err)
	}
	if o.Server != "" {
		admin.Host = o.Server
	}
	s, err := adminSide(admin, invitation, o.LiqoNamespace)
	if err != nil {
		return nil, err
	}
	if err := s.identify(ctx); err != nil {
		return nil, err
	}
	if s.own.ClusterID != invitation.ClusterID {
		return nil, fmt.Errorf("the invitation is for cluster %s, and this one is %s to Liqo: ask for another with --cluster-id %s", invitation.ClusterID, s.own.ClusterID, s.own.ClusterID)
	}
	provides, reader := invitation.Role == v1alpha1.SideProvider, v1alpha1.ReaderNodes
	switch {
	case !provides && len(o.Capacity) > 0:
		return nil, errors.New("the invitation is for a consumer, which sells no capacity: declare none (--capacity)")
	case len(o.Capacity) > 0:
		reader = v1alpha1.ReaderDeclared
	}
	o.Progress("giving Sluice the right to look")
	kubeconfig, err := kube.Register(ctx, admin, joinedManifest(provides, reader))
	if err != nil {
		return nil, err
	}
	if err := s.createNamespace(ctx); err != nil {
		return nil, err
	}
	if err := s.giveRights(ctx, inTenantNamespace(invitation)); err != nil {
		return nil, err
	}
	answer := &Answer{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: KindAnswer},
		Cluster:  invitation.Cluster, With: invitation.With, Role: invitation.Role, Network: s.own, Kubeconfig: string(kubeconfig), Capacity: o.Capacity,
	}
	o.Progress("connecting the gateway to " + invitation.With)
	if answer.PublicKey, err = s.callUntilKeyed(ctx, invitation.Gateway); err != nil {
		return nil, err
	}
	switch {
	case provides:
		o.Progress("giving " + invitation.With + " the right to ask for resources")
		if _, err := s.admit(ctx); err != nil {
			return nil, err
		}
		answer.Identity, err = s.lastingIdentity(ctx)
	case len(invitation.Nonce) > 0:
		o.Progress("proving the cluster's key to " + invitation.With)
		answer.Handshake, err = s.prove(ctx, invitation.Nonce)
	}
	return answer, err
}

// validate checks the fields that affect which rights are granted. The nonce must have the form
// of Liqo's nonces, because the cluster's key signs it.
func (i *Invitation) validate() error {
	if i.Role != v1alpha1.SideProvider && i.Role != v1alpha1.SideConsumer {
		return fmt.Errorf("invitation: role %q: want %s or %s", i.Role, v1alpha1.SideProvider, v1alpha1.SideConsumer)
	}
	if len(i.Nonce) == 0 {
		return nil
	}
	if i.Role != v1alpha1.SideConsumer {
		return errors.New("invitation: nonce: a provider has nothing to sign")
	}
	if random, err := base64.StdEncoding.Strict().DecodeString(string(i.Nonce)); err != nil || len(random) != nonceSize {
		return fmt.Errorf("invitation: nonce: is not one of Liqo's, which are %d bytes in base64", nonceSize)
	}
	return nil
}

// adminSide returns the side of a cluster, with its administrator's credentials.
func adminSide(admin *rest.Config, invitation *Invitation, liqoNamespace string) (*side, error) {
	c, err := client.New(admin, client.Options{Scheme: names.Scheme})
	if err != nil {
		return nil, fmt.Errorf("build the administrator's client: %w", err)
	}
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: invitation.Cluster}}
	cluster.Spec.Liqo = &v1alpha1.LiqoCluster{Namespace: liqoNamespace}
	s := &side{
		Client: c, cluster: cluster, hub: invitation.Hub, remote: invitation.Network,
		connection: &member.Connection{Cluster: invitation.Cluster, Config: admin, ConsumerServer: admin.Host, CAData: admin.CAData},
	}
	s.own.ClusterID = invitation.ClusterID
	return s, nil
}

// joinedManifest describes Sluice's account on a cluster that has joined. The account may read
// everything that JoinedRules and kube.GuardRules list, and isolate consumers' pods at a provider. All its other
// writes are in one namespace (inTenantNamespace).
func joinedManifest(provides bool, reader string) kube.ManifestOptions {
	o := kube.ManifestOptions{
		Rules: append(JoinedRules(reader), kube.GuardRules()...), TenantRules: []rbacv1.PolicyRule{},
		WithoutAdmissionPolicies: true, // they would guard namespaces that this account cannot create
	}
	if provides {
		// Guards before powers.
		o.Powers = append(Guards(kube.DefaultNamespace), rbacv1ac.ClusterRole(PeerRole).WithRules(kube.ApplyRules(peerRules())...))
		o.Powers = append(o.Powers, isolationPowers(kube.DefaultNamespace)...)
	}
	return o
}

// inTenantNamespace returns what Sluice may do in the tenant namespace of a cluster that has
// joined.
func inTenantNamespace(invitation *Invitation) []rbacv1.PolicyRule {
	switch {
	case invitation.Role == v1alpha1.SideProvider:
		return append(networkRules(), judgeRules()...)
	case len(invitation.Nonce) > 0:
		return append(networkRules(), askRules()...)
	}
	return networkRules()
}

// giveRights gives rights in the tenant namespace to Sluice's account.
func (s *side) giveRights(ctx context.Context, rules []rbacv1.PolicyRule) error {
	err := s.apply(ctx, &rbacv1.Role{ObjectMeta: s.meta(joinedRole), Rules: rules})
	if err != nil {
		return err
	}
	return s.apply(ctx, &rbacv1.RoleBinding{
		ObjectMeta: s.meta(joinedRole),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: joinedRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: kube.DefaultNamespace, Name: kube.ServiceAccountName}},
	})
}

// callUntilKeyed sets up the network of this side, and waits for the key of its gateway.
func (s *side) callUntilKeyed(ctx context.Context, gateway v1alpha1.GatewayAddress) (key []byte, err error) {
	endpoint := &networkingv1beta1.EndpointStatus{Addresses: gateway.Addresses, Port: gateway.Port, Protocol: ptr.To(corev1.ProtocolUDP)}
	err = s.until(ctx, func(ctx context.Context) error {
		if err := configure(ctx, s); err != nil {
			return err
		}
		key, err = s.call(ctx, endpoint)
		return err
	})
	if err != nil {
		return nil, err
	}
	return key, s.trust(ctx, gateway.PublicKey)
}

// until repeats do while it returns *delivery.PendingError, for at most acceptPatience.
func (s *side) until(ctx context.Context, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, often, acceptPatience, true, func(ctx context.Context) (bool, error) {
		last = do(ctx)
		if pending := (*delivery.PendingError)(nil); errors.As(last, &pending) {
			return false, nil
		}
		return true, last
	})
	if err != nil && last != nil {
		return last
	}
	return err
}

// lastingIdentity returns the inviting cluster's kubeconfig, with a token that lasts until its
// Secret is deleted: Sluice has no right to renew it here.
func (s *side) lastingIdentity(ctx context.Context) (string, error) {
	secret := &corev1.Secret{ObjectMeta: s.meta(PeerRole), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: PeerRole}
	if err := s.apply(ctx, secret); err != nil {
		return "", err
	}
	err := s.until(ctx, func(ctx context.Context) error {
		if err := s.get(ctx, PeerRole, secret); err != nil {
			return err
		}
		if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return s.pending("token in Secret "+PeerRole, "")
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	kubeconfig, err := s.kubeconfig(string(secret.Data[corev1.ServiceAccountTokenKey]))
	return string(kubeconfig), err
}

// Leave removes everything that Accept has created, and with it the other cluster's objects
// there. Call it when the peering has ended, or to end it. It blocks until everything is gone, at
// most two minutes.
func Leave(ctx context.Context, admin *rest.Config, invitation *Invitation, liqoNamespace string) error {
	s, err := adminSide(admin, invitation, liqoNamespace)
	if err != nil {
		return err
	}
	return s.until(ctx, func(ctx context.Context) error {
		for _, step := range []func(context.Context) error{s.dismiss, s.disconnect, s.removeNamespace, s.forget} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// createNamespace creates the tenant namespace.
func (s *side) createNamespace(ctx context.Context) error {
	standing, err := s.standing(ctx)
	if err != nil || standing == tenant.Held {
		return err
	}
	labels := s.labels()
	labels[consts.TenantNamespaceLabel] = "true"
	labels[consts.RemoteClusterID] = s.remote.ClusterID
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace(), Labels: labels}}
	if standing == tenant.Ending {
		return s.pending("create namespace "+namespace.Name, "the one before it is still being deleted")
	}
	err = s.Create(ctx, namespace, client.FieldOwner(v1alpha1.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("namespace %s on %s is not Sluice's: the two clusters are peered without Sluice", namespace.Name, s.cluster.Name),
			Remedy: "end that peering with `liqoctl unpeer`, or leave the two to it",
		}
	}
	if err != nil {
		return s.failed(fmt.Errorf("create namespace %s: %w", namespace.Name, err))
	}
	return nil
}
