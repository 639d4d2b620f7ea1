package bindings_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/overlay"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/test/controlplane"
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
		{"what is exposed is listed where there is no peering", exposedWithoutPeering},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, f) })
	}
}

func (f *fixture) node(t *testing.T, cluster, name string) {
	t.Helper()
	if err := f.planes[cluster].AddNode(t.Context(), controlplane.Node{Name: name}); err != nil {
		t.Fatal(err)
	}
}

// pod runs a pod and returns it with its address, once the Service of its name, if there is
// one, knows it.
func (f *fixture) pod(t *testing.T, cluster, namespace, name, node string) *corev1.Pod {
	t.Helper()
	amount := corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("10Mi")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			SchedulerName: "this-test", AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(1)),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "c", Image: "example.com/web", Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount},
				Ports:           []corev1.ContainerPort{{ContainerPort: 8080}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {ContainerPort: 9, Protocol: corev1.ProtocolSCTP}},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	eventually(t, "pod "+name+" is created", func(ctx context.Context) (bool, error) {
		return f.admin[cluster].Create(ctx, pod.DeepCopy()) == nil, nil // its namespace is new
	})
	// As a scheduler does: consumers' pods do not choose their node.
	if err := f.admin[cluster].SubResource("binding").Create(t.Context(), pod.DeepCopy(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pod "+name+" is ready", func(ctx context.Context) (bool, error) {
		err := f.admin[cluster].Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}), err
	})
	if apierrors.IsNotFound(f.admin[cluster].Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Service{})) {
		return pod
	}
	eventually(t, "Service "+name+" is ready", func(ctx context.Context) (bool, error) {
		var list discoveryv1.EndpointSliceList
		err := f.admin[cluster].List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: name})
		return slices.ContainsFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
		}), err
	})
	return pod
}

// service makes a Service, before the pods of its name.
func (f *fixture) service(t *testing.T, cluster, namespace, name string, kind corev1.ServiceType) *corev1.Service {
	t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{Type: kind, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{
			{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)},
			{Name: "nowhere", Port: 81, TargetPort: intstr.FromString("no-such-port")},
		}},
	}
	f.make(t, cluster, service)
	return service
}

func peering(cluster, hub, node string) v1alpha1.Placement {
	return v1alpha1.Placement{Cluster: cluster, Peering: &v1alpha1.PlacementPeering{Consumer: own, Hub: hub, Node: node}}
}

// mapped is the address to which a cluster maps an address of another one.
func mapped(t *testing.T, near, far, kind, address string) string {
	t.Helper()
	from, to := podRange, seen[[2]string{near, far}][0]
	if kind == "external" {
		from, to = externalRange, seen[[2]string{near, far}][1]
	}
	ranges, err := overlay.New([]string{from}, []string{to})
	if err != nil {
		t.Fatal(err)
	}
	at, err := ranges.Map(netip.MustParseAddr(address))
	if err != nil {
		t.Fatal(err)
	}
	return at.String()
}

// addressFor is the address that Liqo has given to a cluster IP or, for a hub's pods, to a
// pod's address.
func (f *fixture) addressFor(t *testing.T, cluster, namespace, ip string) string {
	t.Helper()
	var address string
	eventually(t, "an address for "+ip+" on "+cluster, func(ctx context.Context) (bool, error) {
		var list ipamv1alpha1.IPList
		err := f.admin[cluster].List(ctx, &list, client.InNamespace(namespace))
		for i := range list.Items {
			if string(list.Items[i].Spec.IP) == ip {
				address = string(list.Items[i].Status.IP)
			}
		}
		return address != "", err
	})
	return address
}

// ownAddresses are the IP resources of a binding.
func (f *fixture) ownAddresses(t *testing.T, cluster string, b *v1alpha1.ServiceBinding) []ipamv1alpha1.IP {
	t.Helper()
	var list ipamv1alpha1.IPList
	if err := f.admin[cluster].List(t.Context(), &list, client.MatchingLabels{v1alpha1.LabelBinding: b.Name}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func serverOf(t *testing.T, f *fixture, cluster string) v1alpha1.Endpoint {
	t.Helper()
	at, err := url.Parse(f.planes[cluster].Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	return v1alpha1.Endpoint{Host: at.Hostname(), Ports: []string{at.Port()}, Protocol: "tcp"}
}

// podEndpoints are the endpoints of a pod at an address.
func podEndpoints(host string) []v1alpha1.Endpoint {
	return []v1alpha1.Endpoint{{Host: host, Ports: []string{"8080"}, Protocol: "tcp"}, {Host: host, Ports: []string{"53"}, Protocol: "udp"}}
}

func (f *fixture) lists(t *testing.T, b *v1alpha1.ServiceBinding, what string, want ...v1alpha1.Endpoint) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("endpoints are %v, absent %q, want %v", b.Status.Endpoints, b.Status.EndpointsAbsent, want)
		}
	}()
	f.until(t, b, what, func(b *v1alpha1.ServiceBinding) bool { return reflect.DeepEqual(b.Status.Endpoints, want) })
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
	begun := f.looks.Load()
	eventually(t, "several looks", func(context.Context) (bool, error) { return f.looks.Load() > begun+6, nil })
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil || b.ResourceVersion != version {
		t.Errorf("several looks later the binding is at %s, error %v, want %s", b.ResourceVersion, err, version)
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
			"own→provider: gateway connection is Connecting, not Connected, on own",
		},
		{
			"the provider's gateway is not connected",
			func() { f.connect(t, provider, own, networkingv1beta1.ConnectionError) },
			func() { f.connect(t, provider, own, networkingv1beta1.Connected) },
			"own→provider: gateway connection is Error, not Connected, on provider",
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
	if want := "hub→provider: gateway connection is Connecting, not Connected, on hub"; b.Status.EndpointsAbsent != want {
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
		return b.Status.EndpointsAbsent == "own→provider: pod consumers/web has the address "+pod.Status.PodIP+", as which own sees nothing of provider"
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

func peeredMoves(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	before := b.Status.Services["web"]

	f.deliverTo(t, instance, peering(hubCluster, "", ""))
	service := f.service(t, hubCluster, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, hubCluster, namespace, "web", "worker")
	host := mapped(t, own, hubCluster, "external", f.addressFor(t, hubCluster, namespace, service.Spec.ClusterIP))
	f.until(t, b, "the Service is where the instance is", func(b *v1alpha1.ServiceBinding) bool {
		return reflect.DeepEqual(b.Status.Services, map[string][]string{"web": {"tcp://" + host + ":80"}}) && slices.Equal(b.Status.Issued, []string{hubCluster})
	})
	if len(before) != 1 || slices.Equal(before, b.Status.Services["web"]) {
		t.Errorf("web was at %v and is at %v", before, b.Status.Services["web"])
	}
	f.unbound(t, b)
}

func unbindTakesBack(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	first, second := f.bound(t, f.bind(t, instance, "binding-1", "edit")), f.bound(t, f.bind(t, instance, "binding-2", "edit"))
	for _, b := range []*v1alpha1.ServiceBinding{first, second} {
		if n := len(f.ownAddresses(t, provider, b)); n != 1 {
			t.Fatalf("%s has %d addresses, want one", b.Spec.BindingID, n)
		}
	}
	if err := f.admin[provider].Create(t.Context(), &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "somebody-elses"}, Spec: ipamv1alpha1.IPSpec{IP: "10.128.7.7"},
	}); err != nil {
		t.Fatal(err)
	}
	f.unbound(t, first)
	if left := f.ownAddresses(t, provider, first); len(left) > 0 {
		t.Errorf("unbound, %d addresses are left", len(left))
	}
	if left := f.ownAddresses(t, provider, second); len(left) != 1 {
		t.Errorf("the other binding has %d addresses, want one", len(left))
	}
	f.addressFor(t, provider, namespace, "10.128.7.7")
	f.unbound(t, second)
}

// killedBetween simulates a kill after Liqo was asked for addresses.
func killedBetween(t *testing.T, f *fixture) {
	lost, fail := errors.New("killed"), true
	controller, other := f.byHand(t, func() error {
		if fail {
			return lost
		}
		return nil
	})
	other.declarePeering(t, own, provider)
	instance := other.deliverTo(t, other.instance(t), peering(provider, "", ""))
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.service(t, provider, namespace, "web", corev1.ServiceTypeClusterIP)
	f.pod(t, provider, namespace, "web", "worker")
	b := other.bind(t, instance, "binding-1", "edit")
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}
	lose := func(when string, addresses int) {
		t.Helper()
		fail = true
		if _, err := controller.Reconcile(t.Context(), request); !errors.Is(err, lost) {
			t.Fatalf("%s: %v, want the write lost", when, err)
		}
		fail = false
		if n := len(f.ownAddresses(t, provider, b)); n != addresses {
			t.Fatalf("%s: %d addresses, want %d", when, n, addresses)
		}
	}
	lose("before the status says where", 0)
	b.Status.Clusters, b.Status.AddressClusters = []string{provider}, []string{provider}
	if err := f.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	lose("once Liqo was asked", 1)
	eventually(t, "bind succeeds", func(ctx context.Context) (bool, error) {
		if _, err := controller.Reconcile(ctx, request); err != nil {
			return false, err
		}
		err := f.Get(ctx, request.NamespacedName, b)
		return err == nil && in(v1alpha1.StateSucceeded)(b), err
	})
	if n := len(f.ownAddresses(t, provider, b)); n != 1 {
		t.Errorf("%d addresses, want one", n)
	}
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	eventually(t, "unbind succeeds", func(ctx context.Context) (bool, error) {
		if _, err := controller.Reconcile(ctx, request); err != nil {
			return false, err
		}
		return f.Get(ctx, request.NamespacedName, b) != nil, nil
	})
	if n := len(f.ownAddresses(t, provider, b)); n > 0 {
		t.Errorf("unbound, %d addresses are left", n)
	}
}

// allowExposure lifts the quota that the driver kube keeps on exposed Services.
func (f *fixture) allowExposure(t *testing.T, cluster, namespace string) {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sluice"}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hard":{"services.nodeports":"9","services.loadbalancers":"9"}}}`))
	if err := f.admin[cluster].Patch(t.Context(), quota, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota is in force", func(ctx context.Context) (bool, error) {
		err := f.admin[cluster].Get(ctx, client.ObjectKeyFromObject(quota), quota)
		hard := quota.Status.Hard[corev1.ResourceServicesNodePorts]
		return hard.Value() == 9, err
	})
}

func exposedWithoutPeering(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), v1alpha1.Placement{Cluster: provider})
	namespace := v1alpha1.MemberNamespace(instance.Name)
	f.allowExposure(t, provider, namespace)
	nodePort := f.service(t, provider, namespace, "web", corev1.ServiceTypeNodePort)
	f.service(t, provider, namespace, "idle", corev1.ServiceTypeNodePort)
	f.pod(t, provider, namespace, "web", "worker")
	balanced := f.service(t, provider, namespace, "balanced", corev1.ServiceTypeLoadBalancer)
	f.pod(t, provider, namespace, "balanced", "worker")
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "web.example"}}
	if err := f.admin[provider].Status().Update(t.Context(), balanced); err != nil {
		t.Fatal(err)
	}
	var node corev1.Node
	if err := f.admin[provider].Get(t.Context(), client.ObjectKey{Name: "worker"}, &node); err != nil {
		t.Fatal(err)
	}
	host := node.Status.Addresses[slices.IndexFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })].Address
	port := intstr.FromInt32(nodePort.Spec.Ports[0].NodePort)
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	f.lists(t, b, "the API server first",
		serverOf(t, f, provider),
		v1alpha1.Endpoint{Host: "192.0.2.1", Ports: []string{"80"}, Protocol: "tcp"},
		v1alpha1.Endpoint{Host: "web.example", Ports: []string{"80"}, Protocol: "tcp"},
		v1alpha1.Endpoint{Host: host, Ports: []string{port.String()}, Protocol: "tcp"},
	)
	if want := []string{"tcp://" + host + ":" + port.String()}; !slices.Equal(b.Status.Services["web"], want) || b.Status.EndpointsAbsent != "" {
		t.Errorf("web is at %v and absent %q, want %v", b.Status.Services["web"], b.Status.EndpointsAbsent, want)
	}
	f.unbound(t, b)
}
