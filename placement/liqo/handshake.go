package liqo

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/delivery"
)

const (
	// nonceSecret is the Secret in which Liqo's own tool keeps the nonce.
	nonceSecret = "liqo-nonce"
	// nonceSize is the number of random bytes that Liqo generates.
	nonceSize = 64
)

// nonce returns the nonce that the other cluster must sign. Liqo generates it.
func (s *side) nonce(ctx context.Context) ([]byte, error) {
	secret := &corev1.Secret{ObjectMeta: s.meta(nonceSecret)}
	secret.Labels[consts.NonceSecretLabelKey] = "true"
	if err := s.apply(ctx, secret); err != nil {
		return nil, err
	}
	if len(secret.Data[consts.NonceSecretField]) == 0 {
		return nil, s.pending("Secret "+nonceSecret, "Liqo has not created a nonce yet: check that its controller manager runs")
	}
	return secret.Data[consts.NonceSecretField], nil
}

// prove signs the nonce of a provider with the key of this cluster's Liqo, and requests a
// certificate for that key. It needs the rights of an administrator; the key stays on the
// administrator's machine.
func (s *side) prove(ctx context.Context, nonce []byte) (*v1alpha1.LiqoHandshake, error) {
	key, public, err := authentication.GetClusterKeys(ctx, s.Client, s.liqoNamespace())
	if err != nil {
		return nil, s.failed(err)
	}
	proof := &v1alpha1.LiqoHandshake{PublicKey: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})}
	if proof.Signature, err = authentication.SignNonce(key, nonce); err != nil {
		return nil, s.failed(err)
	}
	if proof.CSR, err = authentication.GenerateCSRForControlPlane(key, liqov1beta1.ClusterID(s.own.ClusterID)); err != nil {
		return nil, s.failed(err)
	}
	return proof, nil
}

// verified returns nil if a handshake is the other cluster's, by the same checks as Liqo's.
// Liqo only ignores a wrong one silently.
func (s *side) verified(nonce []byte, proof *v1alpha1.LiqoHandshake) error {
	refused := func(why string) error {
		return &delivery.RefusedError{
			Reason: fmt.Sprintf("the answer of cluster %s does not prove its key: %s", s.remote.ClusterID, why),
			Remedy: "withdraw the invitation, and invite it again",
		}
	}
	key, der, err := authentication.ParseTenantPublicKey(proof.PublicKey)
	if err != nil {
		return refused(err.Error())
	}
	signed, err := authentication.VerifyNonce(key, nonce, proof.Signature)
	if err != nil {
		return refused(err.Error())
	}
	if !signed {
		return refused("its signature is not of the nonce that it was sent")
	}
	if err := authentication.CheckCSRForControlPlane(proof.CSR, der, liqov1beta1.ClusterID(s.remote.ClusterID)); err != nil {
		return refused("its certificate signing request: " + err.Error())
	}
	return nil
}

// shakeHands lets the provider's Liqo verify a joined consumer's key, gives the identity that
// it issues to the consumer's Liqo, which alone has the key, and returns when the identity
// ends. The two Liqos renew it between them.
func shakeHands(ctx context.Context, consumer, provider *side) (*metav1.Time, error) {
	proof := consumer.joined().Handshake
	if proof == nil {
		return nil, &delivery.RefusedError{
			Reason: fmt.Sprintf("%s has joined for the network only", consumer.cluster.Name),
			Remedy: "withdraw the invitation, and invite it without --network-only",
		}
	}
	nonce, err := provider.nonce(ctx)
	if err != nil {
		return nil, err
	}
	if err := provider.verified(nonce, proof); err != nil {
		return nil, err
	}
	tenant := &authv1beta1.Tenant{
		ObjectMeta: provider.meta(provider.remote.ClusterID),
		Spec: authv1beta1.TenantSpec{
			ClusterID: liqov1beta1.ClusterID(provider.remote.ClusterID), AuthzPolicy: ptr.To(authv1beta1.KeysExchange),
			PublicKey: proof.PublicKey, Signature: proof.Signature, CSR: proof.CSR,
			TenantCondition: authv1beta1.TenantConditionActive,
		},
	}
	if err := provider.apply(ctx, tenant); err != nil {
		return nil, err
	}
	issued := tenant.Status.AuthParams
	if issued == nil || len(issued.SignedCRT) == 0 {
		return nil, provider.pending("Tenant "+tenant.Name, "Liqo has not signed its certificate yet")
	}
	// The address of the provider's API server comes from Sluice, which knows it better than
	// the provider's Liqo.
	asks := *issued
	asks.APIServer, asks.CA = provider.connection.ConsumerServer, provider.connection.CAData
	identity := &authv1beta1.Identity{
		ObjectMeta: consumer.meta("controlplane-" + provider.own.ClusterID),
		Spec: authv1beta1.IdentitySpec{
			ClusterID: liqov1beta1.ClusterID(provider.own.ClusterID), Type: authv1beta1.ControlPlaneIdentityType,
			AuthParams: asks, Namespace: ptr.To(provider.namespace()),
		},
	}
	err = consumer.apply(ctx, identity)
	if err != nil {
		return nil, err
	}
	return endOf(issued.SignedCRT)
}

// endOf returns when a certificate in PEM ends.
func endOf(certificate []byte) (*metav1.Time, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, fmt.Errorf("the certificate that Liqo has issued is not PEM")
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the certificate that Liqo has issued: %w", err)
	}
	return ptr.To(metav1.NewTime(parsed.NotAfter)), nil
}
