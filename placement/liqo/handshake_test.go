package liqo_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/liqo"
)

// aConsumerJoinsByInvitation: the consumer's owner proves its key by Liqo's handshake,
// Sluice requests a node on its behalf, and neither can do more.
func aConsumerJoinsByInvitation(p *pair) {
	t := p.T
	peering, invitation := p.invite(v1alpha1.ModulesFor(true))
	if c := ready(peering); c.Reason != v1alpha1.ReasonInProgress || !strings.Contains(c.Message, "peer with theirs: its owner has not answered") {
		t.Errorf("before there is an answer it says %s %q", c.Reason, c.Message)
	}

	o := liqo.AcceptOptions{LiqoNamespace: p.consumer.liqo, Progress: func(string) {}}
	answer, err := liqo.Accept(t.Context(), p.consumer.Config(), invitation, o)
	must(t, err)
	again, err := liqo.Accept(t.Context(), p.consumer.Config(), invitation, o)
	must(t, err)
	if again.Kubeconfig != answer.Kubeconfig || !bytes.Equal(again.Handshake.Signature, answer.Handshake.Signature) || answer.Identity != "" {
		t.Error("accepted again, the answer is another one, or it gives the provider an identity on the consumer's cluster")
	}
	ours := p.consumer.tenant(p.provider)
	mayOnly(t, as(t, []byte(answer.Kubeconfig)), []may{
		{"", "list", "", "nodes", "", "", true},
		{ours, "create", auth, "resourceslices", "", "", true},
		{ours, "update", auth, "resourceslices", "status", "", false},
		{ours, "create", auth, "identities", "", "", true},
		{ours, "create", auth, "tenants", "", "", false},
		{ours, "get", networking, "configurations", "", "", true},
		{ours, "create", networking, "configurations", "", "", false},
		{ours, "get", "", "secrets", "", "", false},
		{ours, "create", "", "pods", "", "", false},
		{ours, "create", rbacv1.GroupName, "rolebindings", "", "", false},
		{p.consumer.liqo, "get", "", "secrets", "", "", false},
		{"default", "create", auth, "resourceslices", "", "", false},
		{"default", "create", offloading, "namespaceoffloadings", "", "", false},
		{"", "create", "", "namespaces", "", "", false},
		{"", "delete", "", "namespaces", "", ours, false},
		{"", "delete", "core.liqo.io", "foreignclusters", "", "", false},
	})

	// The answer must prove which cluster it comes from.
	p.consumer.kubeconfig = []byte(answer.Kubeconfig)
	foreign := installed(t, "foreign", p.consumer.plane) // in the same tenant namespace, with another key
	foreignInvitation := *invitation
	foreignInvitation.Cluster, foreignInvitation.ClusterID = foreign.name, foreign.id
	stolen, err := liqo.Accept(t.Context(), p.consumer.Config(), &foreignInvitation, liqo.AcceptOptions{LiqoNamespace: foreign.liqo, Progress: o.Progress})
	must(t, err)
	another := *invitation
	another.Nonce = nonce()
	old, err := liqo.Accept(t.Context(), p.consumer.Config(), &another, o)
	must(t, err)
	joined := &v1alpha1.JoinedPeering{With: p.provider.name, PublicKey: answer.PublicKey, Network: answer.Network}
	cluster := p.member(t, p.consumer, &v1alpha1.LiqoCluster{Joined: joined})
	must(t, p.hub.Create(t.Context(), cluster))
	for _, test := range []struct {
		name  string
		proof *v1alpha1.LiqoHandshake
		says  string
	}{
		{"none", nil, "has joined for the network only"},
		{"of another nonce", old.Handshake, "its signature is not of the nonce"},
		{"no key", &v1alpha1.LiqoHandshake{PublicKey: []byte("key"), Signature: answer.Handshake.Signature, CSR: answer.Handshake.CSR}, "invalid public key format"},
		{"another cluster's key", &v1alpha1.LiqoHandshake{PublicKey: answer.Handshake.PublicKey, Signature: answer.Handshake.Signature, CSR: stolen.Handshake.CSR}, "certificate signing request"},
		{"all of another cluster", stolen.Handshake, "certificate signing request: invalid common name"},
	} {
		cluster.Spec.Liqo.Joined.Handshake = test.proof
		must(t, p.hub.Update(t.Context(), cluster))
		p.pass(t.Context(), peering)
		if c := ready(peering); c.Reason != "Refused" || !strings.Contains(c.Message, test.says) {
			t.Errorf("a proof that is %s: %s %q, want it refused with %q", test.name, c.Reason, c.Message, test.says)
		}
		if p.provider.has(t, p.provider.tenant(p.consumer), p.consumer.id, &authv1beta1.Tenant{}) {
			t.Fatalf("a proof that is %s has made a tenant", test.name)
		}
	}
	cluster.Spec.Liqo.Joined.Handshake = answer.Handshake
	must(t, p.hub.Update(t.Context(), cluster))
	p.untilReady(peering)
	if peering.Status.IdentityExpiresAt == nil || peering.Status.IdentityExpiresAt.Before(&peering.CreationTimestamp) {
		t.Errorf("the identity ends at %v", peering.Status.IdentityExpiresAt)
	}
	if p.provider.has(t, p.provider.tenant(p.consumer), liqo.PeerRole, &corev1.ServiceAccount{}) {
		t.Error("it has an account at the provider beside its certificate")
	}

	// The consumer gets what it buys: the slice is replicated by the certificate.
	d := p.instance("node", "2")
	d.Placement.Peering.Offloading = nil
	d.Instance.Status.Decision.Placements[0] = d.Placement
	must(t, p.hub.Status().Update(t.Context(), d.Instance))
	p.until("it has its node", d, p.driver().Deliver)
	if cores := p.nodeCores(d); cores != "2" {
		t.Errorf("the node has %s cores, want 2", cores)
	}
	must(t, p.driver().Observe(t.Context(), d))

	peer := as(t, p.identity().Data[consts.KubeconfigSecretField])
	there := p.provider.tenant(p.consumer)
	slice := &authv1beta1.ResourceSlice{}
	must(t, peer.Get(t.Context(), client.ObjectKey{Namespace: there, Name: d.Placement.Peering.Node}, slice))
	const why = "a consumer asks, and does not answer itself"
	slice.Status.Resources = amounts("64")
	refusedWith(t, "accept more for itself", peer.Status().Update(t.Context(), slice), why)
	refusedWith(t, "accept it by a patch", peer.Status().Patch(t.Context(), slice, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"resources":{"cpu":"64"}}}`))), why)
	asked := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "asked"}}
	must(t, peer.Create(t.Context(), asked))
	asked.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"mine": {RemoteNamespace: "kube-system", Phase: offloadingv1beta1.MappingAccepted}}
	refusedWith(t, "have a namespace of others for its own", peer.Status().Update(t.Context(), asked), why)
	refusedWith(t, "a slice of another class", peer.Create(t.Context(), &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: there, Name: "bypass", Labels: map[string]string{consts.ReplicationStatusLabel: "true"},
	}}), "resources of this cluster are sold by Sluice")

	p.deprovision(d)
	p.until("the node is given back", d, p.driver().Remove)
	p.deprovisioned(d)
	must(t, p.hub.Delete(t.Context(), peering))
	p.untilGone(peering)
	if !p.consumer.has(t, ours, p.provider.id, &networkingv1beta1.Configuration{}) {
		t.Error("the owner's side has been taken down by somebody else")
	}
	must(t, p.hub.Delete(t.Context(), cluster))
	must(t, liqo.Leave(t.Context(), p.consumer.Config(), invitation, p.consumer.liqo))
	p.wantNothingLeft()

	// The consumer joins again, for the network only: it signs nothing, and nothing is
	// requested for it.
	peering, invitation = p.invite(v1alpha1.ModulesFor(false))
	answer, err = liqo.Accept(t.Context(), p.consumer.Config(), invitation, o)
	must(t, err)
	if invitation.Nonce != nil || answer.Handshake != nil {
		t.Error("for the network it has to prove its key")
	}
	mayOnly(t, as(t, []byte(answer.Kubeconfig)), []may{
		{ours, "get", networking, "configurations", "", "", true},
		{ours, "create", auth, "resourceslices", "", "", false},
		{ours, "create", auth, "identities", "", "", false},
	})
	p.consumer.kubeconfig = []byte(answer.Kubeconfig)
	must(t, p.hub.Create(t.Context(), p.member(t, p.consumer, &v1alpha1.LiqoCluster{Joined: &v1alpha1.JoinedPeering{
		With: p.provider.name, PublicKey: answer.PublicKey, Network: answer.Network,
	}})))
	p.untilReady(peering)
	if p.provider.has(t, p.provider.tenant(p.consumer), p.consumer.id, &authv1beta1.Tenant{}) {
		t.Error("it may ask for resources")
	}

	// Its own latency is not used; that of the other cluster is.
	for _, side := range [][2]*end{{p.consumer, p.provider}, {p.provider, p.consumer}} {
		here, there := side[0], side[1]
		connection := &networkingv1beta1.Connection{}
		must(t, here.admin.Get(t.Context(), client.ObjectKey{Namespace: here.tenant(there), Name: "gw-" + there.id}, connection))
		connection.Status.Latency = networkingv1beta1.ConnectionLatency{Value: "5ms", Timestamp: metav1.Now()}
		must(t, here.admin.Status().Update(t.Context(), connection))
	}
	p.pass(t.Context(), peering)
	for name, believed := range map[string]int{p.consumer.name: 0, p.provider.name: 1} {
		must(t, p.hub.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: name}, cluster))
		if got := cluster.Status.Latencies; len(got) != believed {
			t.Errorf("%s has the latencies %+v, want %d", name, got, believed)
		}
	}
}

// invite invites the consumer to a peering, and reconciles until there is an invitation.
func (p *pair) invite(modules []v1alpha1.LiqoModule) (peering *v1alpha1.Peering, invitation *liqo.Invitation) {
	p.Helper()
	peering = p.peering()
	peering.Spec = v1alpha1.PeeringSpec{
		Consumer: p.consumer.name, Provider: p.provider.name, Modules: modules, Kept: true,
		Invited: &v1alpha1.InvitedCluster{Role: v1alpha1.SideConsumer, ClusterID: p.consumer.id},
	}
	must(p.T, p.hub.Create(p.Context(), peering))
	p.eventually("there is an invitation", func(ctx context.Context) (bool, error) {
		p.pass(ctx, peering)
		var err error
		invitation, err = liqo.InvitationOf(peering)
		return err == nil, nil
	}, func() string { return ready(peering).Message })
	return peering, invitation
}

// TestInvitationsThatAskForMore: an invitation can obtain only the signatures and rights that
// Liqo needs.
func TestInvitationsThatAskForMore(t *testing.T) {
	for _, test := range []struct {
		name, says string
		invitation liqo.Invitation
	}{
		{"without a role", "role", liqo.Invitation{}},
		{"in a role that there is not", "role", liqo.Invitation{Role: "Owner"}},
		{"of a provider that is to sign", "nothing to sign", liqo.Invitation{Role: v1alpha1.SideProvider, Nonce: nonce()}},
		{"to sign something else", "not one of Liqo's", liqo.Invitation{Role: v1alpha1.SideConsumer, Nonce: []byte("a certificate")}},
		{"to sign something longer", "not one of Liqo's", liqo.Invitation{Role: v1alpha1.SideConsumer, Nonce: append(nonce(), nonce()...)}},
	} {
		if _, err := liqo.Accept(t.Context(), nil, &test.invitation, liqo.AcceptOptions{}); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("an invitation %s: %v, want %q", test.name, err, test.says)
		}
	}
}
