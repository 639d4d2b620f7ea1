package liqo_test

import (
	"bytes"
	"time"

	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/liqo"
)

func (p *pair) identity() *corev1.Secret {
	p.Helper()
	secret := &corev1.Secret{}
	if !p.consumer.has(p.T, p.consumer.tenant(p.provider), p.consumer.identityName(p.provider), secret) {
		p.Fatal("the consumer has no identity")
	}
	return secret
}

func identitiesAreRenewed(p *pair) {
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true))
	p.untilReady(peering)
	first, now := p.identity(), p.clock.Now()
	if left := peering.Status.IdentityExpiresAt.Sub(now); left < 23*time.Hour || left > 25*time.Hour {
		p.Errorf("the identity lasts %s", left)
	}
	p.clock.SetTime(now.Add(11 * time.Hour))
	p.pass(p.Context(), peering)
	if again := p.identity(); again.ResourceVersion != first.ResourceVersion {
		p.Error("an identity that lasts 13 hours more is renewed")
	}
	p.clock.SetTime(now.Add(13 * time.Hour))
	p.pass(p.Context(), peering)
	second := p.identity()
	if bytes.Equal(second.Data[consts.KubeconfigSecretField], first.Data[consts.KubeconfigSecretField]) || second.UID != first.UID {
		p.Error("an identity that ends in 11 hours is not renewed in place")
	}
	p.clock.SetTime(now)
	p.pass(p.Context(), peering)
	if again := p.identity(); again.ResourceVersion != second.ResourceVersion {
		p.Error("a new identity is renewed")
	}

	// Tokens end with the account that they were issued for, whatever their own expiry is.
	must(p.T, p.provider.admin.Delete(p.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.provider.tenant(p.consumer), Name: liqo.PeerRole}}))
	p.untilReady(peering)
	third := p.identity()
	if bytes.Equal(third.Data[consts.KubeconfigSecretField], second.Data[consts.KubeconfigSecretField]) {
		p.Error("the identity is still of the account that was deleted")
	}

	config, err := clientcmd.Load(p.provider.kubeconfig)
	must(p.T, err)
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	cluster.CertificateAuthorityData = append(cluster.CertificateAuthorityData, cluster.CertificateAuthorityData...)
	authorities := cluster.CertificateAuthorityData
	p.renew(p.provider, config)
	p.pass(p.Context(), peering)
	theirs, err := clientcmd.Load(p.identity().Data[consts.KubeconfigSecretField])
	must(p.T, err)
	if got := theirs.Clusters[theirs.Contexts[theirs.CurrentContext].Cluster].CertificateAuthorityData; !bytes.Equal(got, authorities) {
		p.Error("the identity still verifies the provider by its former authorities")
	}
}

// renew gives Sluice another kubeconfig of a cluster.
func (p *pair) renew(of *end, config *clientcmdapi.Config) {
	p.Helper()
	kubeconfig, err := clientcmd.Write(*config)
	must(p.T, err)
	cluster := &v1alpha1.MemberCluster{}
	must(p.T, p.hub.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: of.name}, cluster))
	cluster.Spec.Access.SealedKubeconfig, err = p.keys.Seal(kubeconfig, member.Owner(p.namespace, of.name))
	must(p.T, err)
	must(p.T, p.hub.Update(p.Context(), cluster))
}
