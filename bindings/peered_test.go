package bindings_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// TestOnPeeredClusters shares three clusters with Liqo's resources. Its tests change what
// they share, so they take turns.
func TestOnPeeredClusters(t *testing.T) {
	f := newLiqoFixture(t)
	for _, cluster := range []string{provider, hubCluster} {
		f.node(t, cluster, "worker")
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"a peered binding lists Services and pods as the consumer sees them", peeredDirectly},
		{"endpoints follow what runs, and nothing is written when nothing changes", endpointsFollow},
		{"without a peering in force there are none, with the reason", unverifiedHasNone},
		{"behind a hub pods have the addresses that the hub gives them", behindAHub},
		{"nodes of the consumer's own cluster are bound without accounts", onNodes},
		{"endpoints follow an instance that moves, under the same Service names", peeredMoves},
		{"unbind takes back the binding's addresses and no others", unbindTakesBack},
		{"a kill between the addresses and the status doubles nothing", killedBetween},
		{"every request may fail", addressesSurviveFailures},
		{"on pools", onPools},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, f) })
	}
}

func peeredDirectly(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	web := f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.service(t, provider, namespace, "idle", corev1.ServiceTypeClusterIP)
	pod := f.pod(t, provider, namespace, "web", "worker")
	began := time.Now()
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	t.Logf("bound, with addresses by Liqo, in %s", time.Since(began).Round(time.Millisecond))

	host := mapped(t, own, provider, "external", f.addressFor(t, provider, namespace, web.Spec.ClusterIP))
	want := []v1alpha1.Endpoint{{Host: host, Ports: []string{"80"}, Protocol: "tcp"}}
	want = append(want, podEndpoints(mapped(t, own, provider, "pods", pod.Status.PodIP))...)
	// At once, in the response to the bind.
	if want = append(want, serverOf(t, f, provider)); !reflect.DeepEqual(b.Status.Endpoints, want) {
		t.Errorf("endpoints are %v, want %v", b.Status.Endpoints, want)
	}
	if want := map[string][]string{"web": {"tcp://" + host + ":80"}}; !reflect.DeepEqual(b.Status.Services, want) || b.Status.EndpointsAbsent != "" {
		t.Errorf("Services are %v and absent %q, want %v", b.Status.Services, b.Status.EndpointsAbsent, want)
	}
	addresses := f.ownAddresses(t, provider, b)
	if len(addresses) != 2 || !slices.Equal(b.Status.AddressClusters, []string{provider}) {
		t.Fatalf("%d addresses on %v, want one for each Service", len(addresses), b.Status.AddressClusters)
	}
	for i := range addresses {
		labels := addresses[i].Labels
		if labels[v1alpha1.LabelInstance] != instance.Name || labels[v1alpha1.LabelHub] != hubID || addresses[i].Annotations[v1alpha1.AnnotationOwner] != string(b.UID) {
			t.Errorf("labels %v and annotations %v", labels, addresses[i].Annotations)
		}
	}
	if c := f.open(t, b); len(c.Clusters) != 1 || listPods(t.Context(), f.consumer(t, c, ""), namespace) != nil {
		t.Error("the credentials are not those of the provider's namespace")
	}
	f.unbound(t, b)
}

func endpointsFollow(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	f.lists(t, b, "only the API server", serverOf(t, f, provider))
	if want := "no Service and no pod of the instance is ready"; b.Status.EndpointsAbsent != want {
		t.Errorf("absent %q, want %q", b.Status.EndpointsAbsent, want)
	}

	web := f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	pod := f.pod(t, provider, namespace, "web", "worker")
	entries := func(web *corev1.Service) []v1alpha1.Endpoint {
		host := mapped(t, own, provider, "external", f.addressFor(t, provider, namespace, web.Spec.ClusterIP))
		all := []v1alpha1.Endpoint{{Host: host, Ports: []string{"80"}, Protocol: "tcp"}}
		all = append(all, podEndpoints(mapped(t, own, provider, "pods", pod.Status.PodIP))...)
		return append(all, serverOf(t, f, provider))
	}
	f.lists(t, b, "the Service and the pod", entries(web)...)

	version := b.ResourceVersion
	begun := f.lookups.Load()
	eventually(t, "several lookups", func(context.Context) (bool, error) { return f.lookups.Load() > begun+6, nil })
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil || b.ResourceVersion != version {
		t.Errorf("several lookups later the binding is at %s, error %v, want %s", b.ResourceVersion, err, version)
	}

	// Another Service of the same name has another cluster IP, and so another address.
	if err := f.admin[provider].Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	before := web.Spec.ClusterIP
	f.service(t, provider, namespace, "other", corev1.ServiceTypeClusterIP) // may take the first one's
	again := f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.lists(t, b, "the Service that came instead", entries(again)...)
	eventually(t, "the former address is given back", func(context.Context) (bool, error) {
		return !slices.ContainsFunc(f.ownAddresses(t, provider, b), func(a ipamv1alpha1.IP) bool {
			return string(a.Spec.IP) == before && a.Annotations["sluice.dev/service"] == "web" && before != again.Spec.ClusterIP
		}), nil
	})

	if err := f.admin[provider].Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.lists(t, b, "only the API server again", serverOf(t, f, provider))
	f.unbound(t, b)
}

func unverifiedHasNone(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	there := slices.Clone(b.Status.Endpoints)
	if len(there) != 4 {
		t.Fatalf("endpoints are %v, want those of a Service, a pod and an API server", there)
	}
	for _, test := range []struct {
		name      string
		with, end func()
		want      string
	}{
		{
			"the consumer's gateway is not connected",
			func() { f.connect(t, own, provider, networkingv1beta1.Connecting) },
			func() { f.connect(t, own, provider, networkingv1beta1.Connected) },
			"own→provider: the gateway connection is Connecting instead of Connected, on own",
		},
		{
			"the provider's gateway is not connected",
			func() { f.connect(t, provider, own, networkingv1beta1.ConnectionError) },
			func() { f.connect(t, provider, own, networkingv1beta1.Connected) },
			"own→provider: the gateway connection is Error instead of Connected, on provider",
		},
		{
			"the peering is not ready",
			func() {
				f.setPeering(t, own, provider, metav1.ConditionFalse, "the gateway on own waits for an address")
			},
			func() { f.setPeering(t, own, provider, metav1.ConditionTrue, "") },
			"own→provider: the peering is not ready: the gateway on own waits for an address",
		},
		{
			"the consumer's API server does not answer",
			func() { f.planes[own].KillAPIServer() },
			func() {
				if err := f.planes[own].StartAPIServer(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			"gateway connections on own could not be read",
		},
	} {
		test.with()
		f.until(t, b, test.name, func(b *v1alpha1.ServiceBinding) bool { return b.Status.EndpointsAbsent == test.want })
		if want := []v1alpha1.Endpoint{serverOf(t, f, provider)}; !reflect.DeepEqual(b.Status.Endpoints, want) || b.Status.Services != nil {
			t.Errorf("%s: endpoints are %v and Services %v, want %v", test.name, b.Status.Endpoints, b.Status.Services, want)
		}
		late := f.bound(t, f.bind(t, instance, "binding-"+strings.ReplaceAll(test.name, " ", "-"), "edit"))
		if late.Status.EndpointsAbsent != test.want {
			t.Errorf("%s: bound, absent is %q, want %q", test.name, late.Status.EndpointsAbsent, test.want)
		}
		test.end()
		f.lists(t, b, "after that "+test.name, there...)
		f.unbound(t, late)
	}
	f.unbound(t, b)
}

func behindAHub(t *testing.T, f *fixture) {
	instance := f.instance(t)
	node := v1alpha1.VirtualNodeName(instance.Name, provider)
	f.node(t, hubCluster, node)
	f.deliverTo(t, instance, peering(provider, hubCluster, node))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	web := f.service(t, hubCluster, namespace, "web", corev1.ServiceTypeClusterIP)
	pod := f.pod(t, hubCluster, namespace, "web", node)
	f.pod(t, hubCluster, namespace, "local", "worker") // on the hub itself, where nothing is sold
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	if want := "own→hub: Liqo has given pod web no address on hub yet"; b.Status.EndpointsAbsent != want {
		t.Errorf("absent %q, want %q", b.Status.EndpointsAbsent, want)
	}
	// An IP of a former pod of that name leads nowhere; Liqo then creates the right one.
	stale := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}, Spec: ipamv1alpha1.IPSpec{IP: "10.128.9.9"}}
	f.make(t, hubCluster, stale)
	f.addressFor(t, hubCluster, namespace, "10.128.9.9")
	service := v1alpha1.Endpoint{Host: mapped(t, own, hubCluster, "external", f.addressFor(t, hubCluster, namespace, web.Spec.ClusterIP)), Ports: []string{"80"}, Protocol: "tcp"}
	f.lists(t, b, "the Service alone", service, serverOf(t, f, hubCluster))
	if err := f.admin[hubCluster].Delete(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Liqo gives the pod an address", func(ctx context.Context) (bool, error) {
		return f.admin[hubCluster].Create(ctx, &ipamv1alpha1.IP{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}, Spec: ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(pod.Status.PodIP)},
		}) == nil, nil
	})
	want := []v1alpha1.Endpoint{service}
	want = append(want, podEndpoints(mapped(t, own, hubCluster, "external", f.addressFor(t, hubCluster, namespace, pod.Status.PodIP)))...)
	f.lists(t, b, "the Service and the pod", append(want, serverOf(t, f, hubCluster))...)
	if !slices.Equal(b.Status.Clusters, []string{hubCluster}) || b.Status.EndpointsAbsent != "" {
		t.Errorf("accounts are on %v and absent is %q, want them on the hub", b.Status.Clusters, b.Status.EndpointsAbsent)
	}

	// Behind a hub that has lost the provider nothing is ready.
	f.connect(t, hubCluster, provider, networkingv1beta1.Connecting)
	f.lists(t, b, "only the API server", serverOf(t, f, hubCluster))
	if want := "hub→provider: the gateway connection is Connecting instead of Connected, on hub"; b.Status.EndpointsAbsent != want {
		t.Errorf("absent %q, want %q", b.Status.EndpointsAbsent, want)
	}
	f.connect(t, hubCluster, provider, networkingv1beta1.Connected)
	f.unbound(t, b)
}

func onNodes(t *testing.T, f *fixture) {
	instance := f.instance(t)
	node := v1alpha1.VirtualNodeName(instance.Name, provider)
	f.node(t, own, node)
	placement := peering(provider, "", node)
	placement.Peering.Offloading = &v1alpha1.Offloading{Mapping: "DefaultName", Pods: "Remote"}
	f.deliverTo(t, instance, placement)
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))

	plaintext, err := f.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(plaintext.Reveal(), &object); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"cluster": own, "namespace": v1alpha1.MemberNamespace(instance.Name), "clusters": []any{},
		"nodes": []any{map[string]any{"name": node, "cluster": provider}},
	}
	if !reflect.DeepEqual(object, want) {
		t.Errorf("credentials are %v, want %v", object, want)
	}
	if len(b.Status.Clusters) > 0 || b.Status.ExpiresAt != nil || !slices.Equal(b.Status.Nodes, []string{node}) {
		t.Errorf("accounts on %v, expiry %v, nodes %v, want none, none and %s", b.Status.Clusters, b.Status.ExpiresAt, b.Status.Nodes, node)
	}

	// The address of a pod on the consumer's cluster lies in the ranges to which that cluster maps
	// the provider's.
	f.make(t, own, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "consumers"}})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "consumers", Name: "default"}}
	eventually(t, "the namespace has its account", func(ctx context.Context) (bool, error) {
		return f.admin[own].Get(ctx, client.ObjectKeyFromObject(account), account) == nil, nil
	})
	pod := f.pod(t, own, "consumers", "web", node)
	f.until(t, b, "an address that is none of the provider's", func(b *v1alpha1.ServiceBinding) bool {
		return b.Status.EndpointsAbsent == "own→provider: pod consumers/web has the address "+pod.Status.PodIP+", which is outside the ranges that own knows of provider"
	})
	if len(b.Status.Endpoints) > 0 {
		t.Errorf("endpoints are %v, want none", b.Status.Endpoints)
	}
	right := mapped(t, own, provider, "pods", pod.Status.PodIP)
	pod.Status.PodIP, pod.Status.PodIPs = right, []corev1.PodIP{{IP: right}}
	if err := f.admin[own].Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	f.lists(t, b, "the pod", podEndpoints(right)...)

	// On another cluster it is another node.
	other := v1alpha1.VirtualNodeName(instance.Name, hubCluster)
	f.deliverTo(t, instance, peering(hubCluster, "", other))
	f.until(t, b, "the binding names the other node", func(b *v1alpha1.ServiceBinding) bool {
		return slices.Equal(b.Status.Nodes, []string{other}) && len(b.Status.Endpoints) == 0
	})
	f.unbound(t, b)
}
