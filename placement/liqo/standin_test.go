package liqo_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	"github.com/liqotech/liqo/pkg/liqo-controller-manager/authentication"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/liqo/liqotest"
)

// standIn writes what Liqo's controllers would write on two clusters: addresses and keys of
// gateways, connections once both keys are known, certificates for proven keys, replicas of
// slices (with the consumer's identity, as Liqo's replicator does), and virtual nodes of accepted
// slices. It reads what watches have brought, and writes what differs. It moves no packets and runs no pods;
// test/e2e tests those with the real Liqo, on kind.
type standIn struct {
	ends   [2]*end
	paused atomic.Bool
	wires  liqotest.Network
	// replicators are clients with the identities so far, by token.
	replicators map[string]client.Client
}

// releasing is the stand-in's finalizer, as Liqo's replicator has one.
const releasing = "stand-in.example/replica"

func startStandIn(t *testing.T, consumer, provider *end) *standIn {
	s := &standIn{ends: [2]*end{consumer, provider}, replicators: map[string]client.Client{}}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var at int64
		var last time.Time
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if now := s.changes(); !s.paused.Load() && (now != at || time.Since(last) > time.Second) {
				at, last = now, time.Now()
				s.pass(ctx)
			}
		}, 50*time.Millisecond)
	}()
	t.Cleanup(func() { stop(); <-done })
	return s
}

// changes counts those of both clusters; a pass without one would do the same as the last, except what failed.
func (s *standIn) changes() int64 {
	return s.ends[0].plane.changes.Load() + s.ends[1].plane.changes.Load()
}

// pass does everything that is possible; what fails is repeated by the next pass.
func (s *standIn) pass(ctx context.Context) {
	for i, here := range s.ends {
		there := s.ends[1-i]
		s.wires.Pass(ctx, liqotest.Cluster{Admin: here.watching, ID: here.id}, liqotest.Cluster{Admin: there.watching, ID: there.id})
		s.challenge(ctx, here, there)
		s.certify(ctx, here, there)
		s.identify(ctx, here, there)
		s.offload(ctx, here, there)
	}
}

// replicator is a client with the identity that one end has at the other.
func (s *standIn) replicator(ctx context.Context, here, there *end) client.Client {
	var secret corev1.Secret
	if here.watching.Get(ctx, client.ObjectKey{Namespace: here.tenant(there), Name: here.identityName(there)}, &secret) != nil {
		return nil
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[consts.KubeconfigSecretField])
	if err != nil {
		return nil
	}
	who := config.BearerToken + string(config.CertData)
	if s.replicators[who] == nil {
		c, err := client.New(config, client.Options{Scheme: names.Scheme, Mapper: there.admin.RESTMapper()})
		if err != nil {
			return nil
		}
		s.replicators[who] = c
	}
	return s.replicators[who]
}

// challenge generates a nonce.
func (s *standIn) challenge(ctx context.Context, here, there *end) {
	secret := &corev1.Secret{}
	if here.watching.Get(ctx, client.ObjectKey{Namespace: here.tenant(there), Name: "liqo-nonce"}, secret) == nil && secret.Labels[consts.NonceSecretLabelKey] != "" && len(secret.Data) == 0 {
		secret.Data = map[string][]byte{consts.NonceSecretField: nonce()}
		_ = here.watching.Update(ctx, secret)
	}
}

// nonce returns one in the form of Liqo's.
func nonce() []byte {
	random := make([]byte, 64)
	_, _ = rand.Read(random)
	return []byte(base64.StdEncoding.EncodeToString(random))
}

// certify makes the cluster's own signer sign for a tenant that has proven its key, and gives
// it the role that Liqo gives.
func (s *standIn) certify(ctx context.Context, here, there *end) {
	var tenant authv1beta1.Tenant
	key := client.ObjectKey{Namespace: here.tenant(there), Name: there.id}
	if here.watching.Get(ctx, key, &tenant) != nil || authv1beta1.GetAuthzPolicyValue(tenant.Spec.AuthzPolicy) != authv1beta1.KeysExchange || tenant.Status.AuthParams != nil {
		return
	}
	var nonce corev1.Secret
	if here.watching.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: "liqo-nonce"}, &nonce) != nil {
		return
	}
	public, der, err := authentication.ParseTenantPublicKey(tenant.Spec.PublicKey)
	if err != nil {
		return
	}
	signed, err := authentication.VerifyNonce(public, nonce.Data[consts.NonceSecretField], tenant.Spec.Signature)
	if err != nil || !signed || authentication.CheckCSRForControlPlane(tenant.Spec.CSR, der, tenant.Spec.ClusterID) != nil {
		return
	}
	request := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: there.id}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: tenant.Spec.CSR, SignerName: certificatesv1.KubeAPIServerClientSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}}
	if here.watching.Get(ctx, client.ObjectKeyFromObject(request), request) != nil {
		_ = here.watching.Create(ctx, request)
		return
	}
	if len(request.Status.Conditions) == 0 {
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "StandIn"}}
		_ = here.watching.SubResource("approval").Update(ctx, request)
	}
	if len(request.Status.Certificate) == 0 {
		return
	}
	_ = here.watching.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "liqo-remote-controlplane"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-remote-controlplane"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: there.id}},
	})
	// The URL is unreachable: Sluice knows a better one.
	tenant.Status.AuthParams = &authv1beta1.AuthParams{APIServer: "https://192.0.2.1:6443", SignedCRT: request.Status.Certificate}
	tenant.Status.TenantNamespace = key.Namespace
	_ = here.watching.Status().Update(ctx, &tenant)
}

// identify makes a kubeconfig of an identity and the cluster's key.
func (s *standIn) identify(ctx context.Context, here, there *end) {
	var identity authv1beta1.Identity
	if here.watching.Get(ctx, client.ObjectKey{Namespace: here.tenant(there), Name: "controlplane-" + there.id}, &identity) != nil {
		return
	}
	if here.watching.Get(ctx, client.ObjectKey{Namespace: identity.Namespace, Name: here.identityName(there)}, &corev1.Secret{}) == nil {
		return
	}
	private, _, err := authentication.GetClusterKeysPEM(ctx, here.watching, here.liqo)
	if err != nil {
		return
	}
	as := identity.Spec.AuthParams
	const one = "provider"
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: one,
		Clusters:       map[string]*clientcmdapi.Cluster{one: {Server: as.APIServer, CertificateAuthorityData: as.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{one: {ClientCertificateData: as.SignedCRT, ClientKeyData: private}},
		Contexts:       map[string]*clientcmdapi.Context{one: {Cluster: one, AuthInfo: one, Namespace: *identity.Spec.Namespace}},
	})
	if err != nil {
		return
	}
	_ = here.watching.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: identity.Namespace, Name: here.identityName(there)},
		Data:       map[string][]byte{consts.KubeconfigSecretField: kubeconfig},
	})
}

func (s *standIn) offload(ctx context.Context, here, there *end) {
	var list authv1beta1.ResourceSliceList
	if here.watching.List(ctx, &list, client.InNamespace(here.tenant(there)), client.MatchingLabels{consts.ReplicationRequestedLabel: "true"}) != nil {
		return
	}
	remote := s.replicator(ctx, here, there)
	for i := range list.Items {
		if remote != nil {
			s.replicate(ctx, here, there, remote, &list.Items[i])
		}
	}
	var offloadings offloadingv1beta1.NamespaceOffloadingList
	_ = here.watching.List(ctx, &offloadings)
	for i := range offloadings.Items {
		o := &offloadings.Items[i]
		if o.Status.ObservedGeneration != o.Generation {
			o.Status.OffloadingPhase, o.Status.ObservedGeneration = offloadingv1beta1.ReadyOffloadingPhaseType, o.Generation
			_ = here.watching.Status().Update(ctx, o)
		}
	}
}

func (s *standIn) replicate(ctx context.Context, here, there *end, remote client.Client, slice *authv1beta1.ResourceSlice) {
	replica := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: there.tenant(here), Name: slice.Name}}
	if !slice.DeletionTimestamp.IsZero() {
		err := remote.Delete(ctx, replica)
		_ = here.watching.Delete(ctx, &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: slice.Namespace, Name: slice.Name}})
		_ = here.watching.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: slice.Name}})
		if apierrors.IsNotFound(err) && controllerutil.RemoveFinalizer(slice, releasing) {
			_ = here.watching.Update(ctx, slice)
		}
		return
	}
	if controllerutil.AddFinalizer(slice, releasing) && here.watching.Update(ctx, slice) != nil {
		return
	}
	right := there.watching.Get(ctx, client.ObjectKeyFromObject(replica), replica) == nil && equality.Semantic.DeepEqual(replica.Spec, slice.Spec)
	if !right && here.replicate(ctx, remote, slice, replica) != nil {
		return
	}
	accepted := func(of authv1beta1.ResourceSliceConditionType) bool {
		return slices.ContainsFunc(replica.Status.Conditions, func(c authv1beta1.ResourceSliceCondition) bool {
			return c.Type == of && c.Status == authv1beta1.ResourceSliceConditionAccepted
		})
	}
	if !accepted(authv1beta1.ResourceSliceConditionTypeAuthentication) { // by the provider's Liqo
		replica.Status.Conditions = append(replica.Status.Conditions, authv1beta1.ResourceSliceCondition{
			Type: authv1beta1.ResourceSliceConditionTypeAuthentication, Status: authv1beta1.ResourceSliceConditionAccepted, LastTransitionTime: metav1.Now(),
		})
		_ = there.watching.Status().Update(ctx, replica)
		return
	}
	if !equality.Semantic.DeepEqual(slice.Status, replica.Status) {
		slice.Status = replica.Status
		if here.watching.Status().Update(ctx, slice) != nil {
			return
		}
	}
	if accepted(authv1beta1.ResourceSliceConditionTypeResources) {
		here.giveNode(ctx, there, slice)
	}
}

// replicate writes a slice's replica with the consumer's identity, and reads the result into it.
func (e *end) replicate(ctx context.Context, remote client.Client, slice, replica *authv1beta1.ResourceSlice) error {
	err := remote.Get(ctx, client.ObjectKeyFromObject(replica), replica)
	replica.Spec = slice.Spec
	switch {
	case apierrors.IsNotFound(err):
		replica.Labels = maps.Clone(slice.Labels)
		delete(replica.Labels, consts.ReplicationRequestedLabel)
		replica.Labels[consts.ReplicationStatusLabel], replica.Labels[consts.ReplicationOriginLabel] = "true", e.id
		return remote.Create(ctx, replica)
	case err == nil:
		return remote.Update(ctx, replica)
	}
	return err
}

// heartbeat is how often a node says that it is ready.
const heartbeat = 10 * time.Second

// giveNode makes the virtual node of an accepted slice, and keeps its size.
func (e *end) giveNode(ctx context.Context, there *end, slice *authv1beta1.ResourceSlice) {
	virtual := &offloadingv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: slice.Namespace, Name: slice.Name},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: liqov1beta1.ClusterID(there.id)},
	}
	if e.watching.Get(ctx, client.ObjectKeyFromObject(virtual), virtual) != nil {
		_ = e.watching.Create(ctx, virtual)
	}
	node := &corev1.Node{}
	if e.watching.Get(ctx, client.ObjectKey{Name: slice.Name}, node) != nil {
		node.ObjectMeta = metav1.ObjectMeta{Name: slice.Name, Labels: maps.Clone(slice.Status.NodeLabels)}
		node.Labels[consts.RemoteClusterID] = there.id
		if e.watching.Create(ctx, node) != nil {
			return
		}
	}
	beats := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && time.Since(c.LastHeartbeatTime.Time) < heartbeat
	})
	if beats && equality.Semantic.DeepEqual(node.Status.Allocatable, slice.Status.Resources) {
		return
	}
	node.Status.Allocatable, node.Status.Capacity = slice.Status.Resources, slice.Status.Resources
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "StandIn", LastHeartbeatTime: metav1.Now()}}
	_ = e.watching.Status().Update(ctx, node)
}
