package bindings_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// onPools is for instances on pools, of which the clusters are fronts and members. Its tests take turns.
func onPools(t *testing.T, f *fixture) {
	for _, pool := range []string{"pool-1", "pool-2"} {
		if err := f.Create(t.Context(), &v1alpha1.MemberCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: pool},
			Spec:       v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverPool, Pool: &v1alpha1.ClusterPool{Front: hubCluster}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"a binding has the credentials and endpoints of the pool's own", pooledBind},
		{"what is absent names no cluster of the pool", pooledAbsent},
		{"credentials are renewed, and follow those of the pool's own", pooledRenewal},
		{"rotation leaves both valid until the old one goes", pooledRotation},
		{"a binding follows its instance to another pool", pooledMove},
		{"a bind fails with the pool's own", pooledFailure},
		{"unbind does not need the pool in the inventory", pooledForsaken},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, f) })
	}
}

// onPool delivers an instance on a pool, and returns the one that the pool has ordered for itself, behind its front.
func (f *fixture) onPool(t *testing.T, outer *v1alpha1.ServiceInstance, pool, front string) *v1alpha1.ServiceInstance {
	t.Helper()
	id := v1alpha1.PoolInstanceID(pool, outer.Name)
	inner := &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.InstanceName(v1alpha1.PlatformSelf, id), Finalizers: []string{v1alpha1.Finalizer}},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: v1alpha1.PlatformSelf, InstanceID: id, ServiceID: outer.Spec.ServiceID, Desired: outer.Spec.Desired,
			Pool: &v1alpha1.PoolOrder{Pool: pool, Instance: outer.Name, InstanceUID: outer.UID, Platform: outer.Spec.Platform},
		},
	}
	if err := f.Create(t.Context(), inner); err != nil {
		t.Fatal(err)
	}
	node := v1alpha1.VirtualNodeName(inner.Name, provider)
	f.node(t, front, node)
	f.deliverTo(t, inner, peering(provider, front, node))
	outer.Status.Delivered = &v1alpha1.DeliveredState{State: outer.Spec.Desired, Decision: v1alpha1.Decision{Generation: outer.Generation, Placements: []v1alpha1.Placement{{
		Cluster: pool, Reserved: corev1.ResourceList{"cpu": resource.MustParse("1")}, Pool: &v1alpha1.PlacementPool{Instance: inner.Name},
	}}}}
	if err := f.Status().Update(t.Context(), outer); err != nil {
		t.Fatal(err)
	}
	return inner
}

// innerOf reads the inner binding of a binding for an instance of a pool's own.
func (f *fixture) innerOf(t *testing.T, b *v1alpha1.ServiceBinding, inner *v1alpha1.ServiceInstance) *v1alpha1.ServiceBinding {
	t.Helper()
	found := &v1alpha1.ServiceBinding{}
	name := v1alpha1.BindingName(v1alpha1.PlatformSelf, inner.Spec.InstanceID, b.Name)
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, found); err != nil {
		t.Fatal(err)
	}
	return found
}

// innerNames lists the inner bindings of a binding.
func (f *fixture) innerNames(t *testing.T, b *v1alpha1.ServiceBinding) (names []string) {
	t.Helper()
	var list v1alpha1.ServiceBindingList
	if err := f.List(t.Context(), &list, client.InNamespace(f.namespace), client.MatchingLabels{v1alpha1.LabelBinding: b.Name}); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// poolsClusters matches the names of a pool's clusters.
var poolsClusters = regexp.MustCompile(`\b(` + provider + `|` + hubCluster + `)\b`)

// namesNone checks that nothing of a binding names a cluster of the pool: its spec, status and credentials, and what their
// token says.
func (f *fixture) namesNone(t *testing.T, b *v1alpha1.ServiceBinding) {
	t.Helper()
	spec, err := json.Marshal(b.Spec)
	if err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(b.Status)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := f.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		t.Fatal(err)
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(f.open(t, b).Token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string][]byte{"spec": spec, "status": status, "credentials": opened.Reveal(), "token": payload} {
		if found := poolsClusters.FindAllIndex(text, -1); len(found) > 0 {
			t.Errorf("the %s names %s", what, text[max(found[0][0]-60, 0):min(found[0][1]+60, len(text))])
		}
	}
}

// works checks that the credentials of a binding work, on the front, under the name of the pool.
func (f *fixture) works(t *testing.T, b *v1alpha1.ServiceBinding, pool, front string, inner *v1alpha1.ServiceInstance) {
	t.Helper()
	c := f.open(t, b)
	config, err := clientcmd.Load([]byte(c.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	if c.Server != f.planes[front].Config().Host || c.Namespace != v1alpha1.MemberNamespace(inner.Name) || config.CurrentContext != pool || len(c.Clusters) != 1 || c.Clusters[0].Name != pool {
		t.Errorf("the credentials are for %s in %s, named %s: %v", c.Namespace, c.Server, config.CurrentContext, c.Clusters[0].Name)
	}
	if err := listPods(t.Context(), f.consumer(t, c, pool), c.Namespace); err != nil {
		t.Errorf("the credentials do not work: %v", err)
	}
	if err := f.consumer(t, c, pool).List(t.Context(), &corev1.EventList{}, client.InNamespace(c.Namespace)); !apierrors.IsForbidden(err) {
		t.Errorf("events, which name members, are shown: %v", err)
	}
	f.namesNone(t, b)
}

// leavesNothing unbinds, calls each of these while that is under way, and checks that no inner binding and no account is left.
func (f *fixture) leavesNothing(t *testing.T, b *v1alpha1.ServiceBinding, meanwhile ...func()) {
	t.Helper()
	names := f.innerNames(t, b)
	if len(names) == 0 {
		t.Error("there is no inner binding")
	}
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	for _, do := range meanwhile {
		do()
	}
	f.gone(t, b)
	if left := f.innerNames(t, b); len(left) > 0 {
		t.Errorf("unbound, it has the inner bindings %q", left)
	}
	for _, cluster := range []string{hubCluster, provider} {
		var accounts corev1.ServiceAccountList
		var roles rbacv1.RoleBindingList
		for _, list := range []client.ObjectList{&accounts, &roles} {
			if err := f.admin[cluster].List(t.Context(), list, client.HasLabels{v1alpha1.LabelBinding}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range accounts.Items {
			if slices.Contains(names, accounts.Items[i].Name) {
				t.Errorf("unbound, there is the account %s on %s", accounts.Items[i].Name, cluster)
			}
		}
		for i := range roles.Items {
			if slices.Contains(names, roles.Items[i].Name) {
				t.Errorf("unbound, there is the role of %s on %s", roles.Items[i].Name, cluster)
			}
		}
	}
}

func pooledBind(t *testing.T, f *fixture) {
	outer := f.instance(t)
	inner := f.onPool(t, outer, "pool-1", hubCluster)
	namespace := v1alpha1.MemberNamespace(inner.Name)
	web := f.service(t, hubCluster, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, hubCluster, namespace, "web", "worker")
	b := f.bound(t, f.bind(t, outer, "binding-1", "edit"))
	f.works(t, b, "pool-1", hubCluster, inner)

	of := f.innerOf(t, b, inner)
	for what, pair := range map[string][2]any{
		"clusters":  {b.Status.Clusters, []string{"pool-1"}},
		"issued":    {b.Status.Issued, []string{"pool-1"}},
		"endpoints": {b.Status.Endpoints, of.Status.Endpoints},
		"services":  {b.Status.Services, of.Status.Services},
		"times":     {[]*metav1.Time{b.Status.IssuedAt, b.Status.ExpiresAt, b.Status.RenewBefore}, []*metav1.Time{of.Status.IssuedAt, of.Status.ExpiresAt, of.Status.RenewBefore}},
		"policy":    {of.Spec.Credentials, b.Spec.Credentials},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s are %v, want %v", what, pair[0], pair[1])
		}
	}
	if b.Status.ExpiresAt == nil || b.Status.Accounts != nil || !slices.Equal(of.Status.Clusters, []string{hubCluster}) {
		t.Errorf("it expires at %v, with the accounts %v; the inner one is on %v", b.Status.ExpiresAt, b.Status.Accounts, of.Status.Clusters)
	}
	if host := mapped(t, own, hubCluster, "external", f.addressFor(t, hubCluster, namespace, web.Spec.ClusterIP)); !reflect.DeepEqual(b.Status.Services, map[string][]string{"web": {"tcp://" + host + ":80"}}) {
		t.Errorf("Services are %v, want web at %s", b.Status.Services, host)
	}
	address := &f.ownAddresses(t, hubCluster, of)[0]
	hold := func(finalizers string) {
		t.Helper()
		if err := f.admin[hubCluster].Patch(t.Context(), address, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	hold(`["` + releasing + `","example.com/hold"]`)
	f.leavesNothing(t, b, func() {
		for one, want := range map[*v1alpha1.ServiceBinding]string{of: "Liqo on pool-1 has not released 1 addresses yet", b: "waiting for the pool to unbind the instance"} {
			f.until(t, one, want, func(b *v1alpha1.ServiceBinding) bool { return b.Status.Operation.Description == want })
		}
		hold("null")
	})
	if n := len(f.ownAddresses(t, hubCluster, of)); n > 0 {
		t.Errorf("unbound, it has %d addresses", n)
	}
}

func pooledAbsent(t *testing.T, f *fixture) {
	outer := f.instance(t)
	inner := f.onPool(t, outer, "pool-1", hubCluster)
	b := f.bound(t, f.bind(t, outer, "binding-1", "edit"))
	namespace := v1alpha1.MemberNamespace(inner.Name)
	f.service(t, hubCluster, namespace, "web", corev1.ServiceTypeClusterIP)
	pod := f.pod(t, hubCluster, namespace, "web", v1alpha1.VirtualNodeName(inner.Name, provider))
	says := func(when, want string) {
		t.Helper()
		f.until(t, b, when, func(b *v1alpha1.ServiceBinding) bool { return b.Status.EndpointsAbsent == want })
		f.namesNone(t, b)
	}
	says("Liqo has given the pod no address", "pod web has no address yet")
	f.make(t, hubCluster, &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}, Spec: ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(pod.Status.PodIP)}})
	says("it has", "")
	endpoints := b.Status.Endpoints
	for name, legs := range map[string][2]string{"the front is not connected": {own, hubCluster}, "a member is not connected": {hubCluster, provider}} {
		f.connect(t, legs[0], legs[1], networkingv1beta1.Connecting)
		says(name, "the pool's network is not ready")
		f.lists(t, b, name, serverOf(t, f, hubCluster))
		f.connect(t, legs[0], legs[1], networkingv1beta1.Connected)
		says("after that "+name, "")
		f.setPeering(t, legs[0], legs[1], metav1.ConditionFalse, "the gateway on hub waits for provider")
		says(name+" by the hub", "the pool's network is not ready")
		late := f.bound(t, f.bind(t, outer, "binding-2", "edit"))
		if late.Status.EndpointsAbsent != b.Status.EndpointsAbsent {
			t.Errorf("%s: bound, absent is %q", name, late.Status.EndpointsAbsent)
		}
		f.namesNone(t, late)
		f.setPeering(t, legs[0], legs[1], metav1.ConditionTrue, "")
		f.unbound(t, late)
	}
	for cluster, want := range map[string]string{own: "own does not answer", hubCluster: "pool-1 does not answer", provider: "pool-1 does not answer"} {
		f.setReachable(t, cluster, metav1.ConditionFalse)
		says(cluster+" is away", want)
		f.setReachable(t, cluster, metav1.ConditionTrue)
		says(cluster+" is back", "")
	}
	f.lists(t, b, "all is there again", endpoints...)
	f.leavesNothing(t, b)
}

// setReachable sets whether a member cluster answers, as far as the hub knows.
func (f *fixture) setReachable(t *testing.T, name string, status metav1.ConditionStatus) {
	t.Helper()
	var cluster v1alpha1.MemberCluster
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, &cluster); err != nil {
		t.Fatal(err)
	}
	v1alpha1.SetCondition(&cluster.Status.Conditions, cluster.Generation, v1alpha1.ConditionReachable, status, "Tested", "")
	if err := f.Status().Update(t.Context(), &cluster); err != nil {
		t.Fatal(err)
	}
}

func pooledRenewal(t *testing.T, f *fixture) {
	outer := f.instance(t)
	inner := f.onPool(t, outer, "pool-1", hubCluster)
	b := f.bound(t, f.bind(t, outer, "binding-1", "edit"))
	changes := func(what string) {
		t.Helper()
		before := f.open(t, b).Token
		f.until(t, b, what, func(b *v1alpha1.ServiceBinding) bool { return !b.RenewalAsked() && f.open(t, b).Token != before })
		f.works(t, b, "pool-1", hubCluster, inner)
		if of := f.innerOf(t, b, inner); of.RenewalAsked() || f.open(t, of).Token != f.open(t, b).Token || !of.Status.ExpiresAt.Equal(b.Status.ExpiresAt) {
			t.Errorf("%s: the inner one has others, until %v", what, of.Status.ExpiresAt)
		}
	}
	// Expiries are whole seconds, and a renewal ends with another one.
	eventually(t, "the next second", func(context.Context) (bool, error) { return metav1.Now().Unix() > b.Status.IssuedAt.Unix(), nil })
	asked := b.DeepCopy()
	asked.AskRenewal()
	if err := f.Patch(t.Context(), asked, client.MergeFrom(b)); err != nil {
		t.Fatal(err)
	}
	changes("they are renewed")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MemberNamespace(inner.Name), Name: f.innerNames(t, b)[0]}}
	if err := f.admin[hubCluster].Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	changes("the account is lost")
	if err := f.Delete(t.Context(), f.innerOf(t, b, inner)); err != nil {
		t.Fatal(err)
	}
	changes("the inner binding is deleted")
	f.leavesNothing(t, b)
}

func pooledRotation(t *testing.T, f *fixture) {
	outer := f.instance(t)
	inner := f.onPool(t, outer, "pool-1", hubCluster)
	old := f.bound(t, f.bind(t, outer, "binding-1", "edit"))
	next := newBinding(f.namespace, outer, "binding-2", "view")
	next.Spec.PredecessorBindingID = "binding-1"
	if err := f.Create(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	f.works(t, f.bound(t, next), "pool-1", hubCluster, inner)
	f.works(t, old, "pool-1", hubCluster, inner)
	f.leavesNothing(t, old)
	f.works(t, next, "pool-1", hubCluster, inner)
	f.leavesNothing(t, next)
}

func pooledMove(t *testing.T, f *fixture) {
	outer := f.instance(t)
	first := f.onPool(t, outer, "pool-1", hubCluster)
	b := f.bound(t, f.bind(t, outer, "binding-1", "edit"))
	second := f.onPool(t, outer, "pool-2", provider)
	f.until(t, b, "the binding is one of the other pool", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Issued, []string{"pool-2"}) })
	f.works(t, b, "pool-2", provider, second)
	for _, one := range []*v1alpha1.ServiceInstance{first, second} {
		f.innerOf(t, b, one)
	}
	f.until(t, b, "the former pool is forgotten", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Clusters, []string{"pool-2"}) })
	f.leavesNothing(t, b)
}

func pooledFailure(t *testing.T, f *fixture) {
	outer := f.instance(t)
	inner := f.onPool(t, outer, "pool-1", hubCluster)
	if err := f.Delete(t.Context(), inner); err != nil {
		t.Fatal(err)
	}
	b := f.bind(t, outer, "binding-1", "edit")
	f.until(t, b, "bind fails", in(v1alpha1.StateFailed))
	if want := "the service instance is being deprovisioned"; b.Status.Operation.Description != want || b.Status.SealedCredentials != nil {
		t.Errorf("it failed: %q, want %q", b.Status.Operation.Description, want)
	}
	f.leavesNothing(t, b)
}

// pooledForsaken: inner bindings are of the hub, and go without the pool.
func pooledForsaken(t *testing.T, f *fixture) {
	outer := f.instance(t)
	f.onPool(t, outer, "pool-2", provider)
	b := f.bound(t, f.bind(t, outer, "binding-1", "edit"))
	if err := f.Delete(t.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "pool-2"}}); err != nil {
		t.Fatal(err)
	}
	f.leavesNothing(t, b)
}
