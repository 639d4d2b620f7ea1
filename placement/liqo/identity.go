package liqo

import (
	"context"
	"fmt"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/delivery"
)

const (
	// PeerRole is the ClusterRole of consumers' identities in their tenant namespaces.
	PeerRole = "sluice-liqo-peer"
	// identityLifetime is requested for tokens. A token is renewed at half of the lifetime that
	// was granted.
	identityLifetime = 24 * time.Hour
	// annotationExpires and annotationRenew hold when the token in a Secret ends and when it is
	// renewed.
	annotationExpires = "sluice.dev/expires-at"
	annotationRenew   = "sluice.dev/renew-at"
	// annotationIssuer holds the account and the server that issued the token, and the digest of the authorities by
	// which the kubeconfig verifies that server. If one of them changes, the kubeconfig is useless.
	annotationIssuer = "sluice.dev/issued-for"
)

// admit lets the other cluster request resources from this one without Liqo's handshake, which
// only a cluster that joins by invitation does. It creates Liqo's Tenant, and an account with
// PeerRole, which it returns.
func (s *side) admit(ctx context.Context) (*corev1.ServiceAccount, error) {
	account := &corev1.ServiceAccount{ObjectMeta: s.meta(PeerRole), AutomountServiceAccountToken: ptr.To(false)}
	for _, o := range []object{
		&authv1beta1.Tenant{
			ObjectMeta: s.meta(s.remote.ClusterID),
			Spec: authv1beta1.TenantSpec{
				ClusterID: liqov1beta1.ClusterID(s.remote.ClusterID), AuthzPolicy: ptr.To(authv1beta1.TolerateNoHandshake),
				TenantCondition: authv1beta1.TenantConditionActive,
			},
		},
		account,
		&rbacv1.RoleBinding{
			ObjectMeta: s.meta(PeerRole),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: PeerRole},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace(), Name: PeerRole}},
		},
	} {
		if err := s.apply(ctx, o); err != nil {
			return nil, err
		}
	}
	return account, nil
}

// issue requests a token for the other cluster and returns it as a kubeconfig.
func (s *side) issue(ctx context.Context, lifetime time.Duration) (kubeconfig []byte, expires time.Time, err error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(lifetime / time.Second))}}
	holder := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(), Name: PeerRole}}
	if err := s.SubResource("token").Create(ctx, holder, request); err != nil {
		return nil, time.Time{}, s.failed(fmt.Errorf("request a token for ServiceAccount %s/%s: %w", holder.Namespace, holder.Name, err))
	}
	kubeconfig, err = s.kubeconfig(request.Status.Token)
	return kubeconfig, request.Status.ExpirationTimestamp.Time, err
}

// kubeconfig returns the other cluster's kubeconfig for its tenant namespace here.
func (s *side) kubeconfig(token string) ([]byte, error) {
	return member.Kubeconfig{Server: s.connection.ConsumerServer, CA: s.connection.CAData, Namespace: s.namespace(), Token: token}.Marshal()
}

// identitySecret returns the Secret in which Liqo finds the identity for requests to another
// cluster. An identity that never ends has no times.
func (s *side) identitySecret(kubeconfig []byte, issuer string, expires, renew time.Time) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: s.meta(s.identityName()), Data: map[string][]byte{consts.KubeconfigSecretField: kubeconfig}}
	secret.Labels[consts.IdentityTypeLabelKey] = string(authv1beta1.ControlPlaneIdentityType)
	secret.Annotations = map[string]string{consts.RemoteTenantNamespaceAnnotKey: names.TenantNamespace(s.own.ClusterID)}
	secret.Annotations[annotationIssuer] = issuer
	if !expires.IsZero() {
		secret.Annotations[annotationExpires] = expires.UTC().Format(time.RFC3339)
		secret.Annotations[annotationRenew] = renew.UTC().Format(time.RFC3339)
	}
	return secret
}

func (s *side) identityName() string { return "kubeconfig-controlplane-" + s.remote.ClusterID }

// authenticate gives the consumer an identity at the provider, renews it in time, and returns
// when it ends.
func authenticate(ctx context.Context, consumer, provider *side, connections *member.Connections, now time.Time) (*metav1.Time, error) {
	switch {
	case provider.joined() != nil:
		return nil, consumer.useJoined(ctx, provider, connections)
	case consumer.joined() != nil:
		return shakeHands(ctx, consumer, provider)
	}
	account, err := provider.admit(ctx)
	if err != nil {
		return nil, err
	}
	issuer := fmt.Sprintf("%s at %s by %s", account.UID, provider.connection.ConsumerServer, v1alpha1.SRI(provider.connection.CAData))
	var held corev1.Secret
	err = consumer.get(ctx, consumer.identityName(), &held)
	if err == nil && held.DeletionTimestamp.IsZero() && held.Annotations[annotationIssuer] == issuer {
		expires, badEnd := time.Parse(time.RFC3339, held.Annotations[annotationExpires])
		renew, badRenewal := time.Parse(time.RFC3339, held.Annotations[annotationRenew])
		if badEnd == nil && badRenewal == nil && now.Before(renew) {
			return ptr.To(metav1.NewTime(expires)), nil
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	kubeconfig, expires, err := provider.issue(ctx, identityLifetime)
	if err != nil {
		return nil, err
	}
	err = consumer.apply(ctx, consumer.identitySecret(kubeconfig, issuer, expires, now.Add(expires.Sub(now)/2)))
	return ptr.To(metav1.NewTime(expires)), err
}

// useJoined uses the identity in the answer to an invitation. Liqo gets it written anew: Liqo would run the commands and
// read the files that a kubeconfig names.
func (s *side) useJoined(ctx context.Context, provider *side, connections *member.Connections) error {
	given, err := connections.Kubeconfig(ctx, v1alpha1.JoinedIdentity(provider.cluster))
	if err != nil {
		return err
	}
	identity, err := member.ParseForeign(given)
	if err != nil {
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("the identity in the answer of %s is not used: %v", provider.cluster.Name, err),
			Remedy: "let its owner run `sluice peering accept` again, then run `sluice peering join`",
		}
	}
	kubeconfig, err := identity.Marshal()
	if err != nil {
		return err
	}
	return s.apply(ctx, s.identitySecret(kubeconfig, "joined", time.Time{}, time.Time{}))
}

// dismiss deletes the other cluster's identity. It returns nil once all of it is gone.
func (s *side) dismiss(ctx context.Context) error {
	if s.ending {
		return nil
	}
	for _, one := range []struct {
		name string
		object
	}{
		{s.remote.ClusterID, &authv1beta1.Tenant{}},
		{PeerRole, &rbacv1.RoleBinding{}},
		{PeerRole, &corev1.ServiceAccount{}},
	} {
		if err := s.gone(ctx, one.name, one.object); err != nil {
			return err
		}
	}
	return nil
}

// object is a Kubernetes object.
type object = client.Object

func inNamespace(name string) client.ListOption { return client.InNamespace(name) }
