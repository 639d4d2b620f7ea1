package bindings

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
)

// overlaid is three clusters that are peered: own with far, own with hub, and hub with far. Own sees the pods of others (10.10.0.0/16) as 10.60.0.0/16, and their addresses (10.70.0.0/16) as 10.61.0.0/16.
type overlaid struct {
	peerings map[leg]*v1alpha1.Peering
	objects  map[string][]client.Object // by cluster
	denied   map[string]string          // type of objects that may not be listed, by cluster
}

func newOverlaid() *overlaid {
	o := &overlaid{peerings: map[leg]*v1alpha1.Peering{}, objects: map[string][]client.Object{}, denied: map[string]string{}}
	for _, on := range []leg{{"own", "far"}, {"own", "hub"}, {"hub", "far"}} {
		p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: v1alpha1.PeeringName(on.near, on.far)}}
		p.Status.Consumer, p.Status.Provider = &v1alpha1.LiqoNetwork{ClusterID: on.near + "-id"}, &v1alpha1.LiqoNetwork{ClusterID: on.far + "-id"}
		v1alpha1.SetCondition(&p.Status.Conditions, 0, v1alpha1.ConditionReady, metav1.ConditionTrue, "Tested", "")
		o.peerings[on] = p
		for _, side := range [][2]string{{on.near, on.far}, {on.far, on.near}} {
			o.add(side[0], &networkingv1beta1.Connection{
				ObjectMeta: metav1.ObjectMeta{Namespace: liqo.TenantNamespace(side[1] + "-id"), Name: "gateway"},
				Status:     networkingv1beta1.ConnectionStatus{Value: networkingv1beta1.Connected},
			})
		}
		configuration := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: liqo.TenantNamespace(on.far + "-id"), Name: on.far + "-id"}}
		configuration.Spec.Remote, configuration.Status.Remote = ranges("10.10.0.0/16", "10.70.0.0/16"), ptr.To(ranges("10.60.0.0/16", "10.61.0.0/16"))
		meta.SetStatusCondition(&configuration.Status.Conditions, metav1.Condition{Type: networkingv1beta1.ConfigurationConditionNetworkCIDRsConfigured, Status: metav1.ConditionTrue, Reason: "Tested"})
		o.add(on.near, configuration)
	}
	return o
}

func ranges(pods, external string) networkingv1beta1.ClusterConfig {
	return networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterConfigCIDR{
		Pod: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(pods)}, External: []networkingv1beta1.CIDR{networkingv1beta1.CIDR(external)},
	}}
}

func (o *overlaid) add(cluster string, objects ...client.Object) {
	o.objects[cluster] = append(o.objects[cluster], objects...)
}

// of returns an object of a cluster, for a change.
func of[T client.Object](o *overlaid, cluster, namespace string) T {
	i := slices.IndexFunc(o.objects[cluster], func(x client.Object) bool {
		_, ok := x.(T)
		return ok && x.GetNamespace() == namespace
	})
	return o.objects[cluster][i].(T)
}

// given is an address that Liqo has given to something of a binding.
func given(name, target, address string) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{v1alpha1.LabelBinding: "sb-1"}},
		Spec:       ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(target)}, Status: ipamv1alpha1.IPStatus{IP: networkingv1beta1.IP(address)},
	}
}

// lookup starts a search for the endpoints of binding sb-1 in namespace n.
func (o *overlaid) lookup(t *testing.T) *lookup {
	t.Helper()
	hub := fake.NewClientBuilder().WithScheme(hubScheme(t))
	for _, p := range o.peerings {
		hub.WithObjects(p)
	}
	b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "sb-1"}, Status: v1alpha1.ServiceBindingStatus{AddressClusters: []string{"far", "hub"}}}
	l := &lookup{Controller: &Controller{Client: hub.Build(), Hub: "hub-1"}, binding: b, instance: &v1alpha1.ServiceInstance{}, namespace: "n", members: map[string]client.Client{}, legs: map[leg]verdict{}}
	for _, cluster := range []string{"own", "far", "hub"} {
		l.members[cluster] = fake.NewClientBuilder().WithScheme(liqo.Scheme).WithObjects(o.objects[cluster]...).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
			WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				kinds := map[string]client.ObjectList{"pods": &corev1.PodList{}, "addresses": &ipamv1alpha1.IPList{}, "Services": &corev1.ServiceList{}, "gateway connections": &networkingv1beta1.ConnectionList{}}
				if kind, denied := kinds[o.denied[cluster]]; denied && reflect.TypeOf(kind) == reflect.TypeOf(list) {
					return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
				}
				return c.List(ctx, list, options...)
			}}).Build()
	}
	return l
}

var (
	web          = corev1.ServicePort{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}
	addressOfWeb = addressName("sb-1", "web", "10.80.0.1")
	tenantOfFar  = liqo.TenantNamespace("far-id")
	socketOfWeb  = socket{"10.61.0.9", "80", "tcp", "web"}
	socketOfPod  = socket{"10.60.0.5", "8080", "tcp", ""}
	socketBehind = socket{"10.61.0.7", "8080", "tcp", ""}
)

// served adds a Service with a ready endpoint, and its address, to a cluster.
func (o *overlaid) served(cluster, node string) *overlaid {
	o.add(cluster, serviceOf("web", "10.80.0.1", web), endpointsFor("web", "web-1", ptr.To(true), node, "http"), given(addressOfWeb, "10.80.0.1", "10.70.0.9"))
	return o
}

// TestLookups: what a consumer's cluster reaches of an instance, and otherwise why not, in words for the consumer.
func TestLookups(t *testing.T) {
	direct := func(l *lookup) error { return l.direct(context.Background(), ptr.To(peeredWith("far", "", ""))) }
	nodes := func(l *lookup) error {
		return l.nodePods(context.Background(), ptr.To(peeredWith("far", "", "virtual")))
	}
	services := func(l *lookup) error {
		p := peeredWith("far", "hub", "virtual")
		l.hubServices(context.Background(), &p, []v1alpha1.Placement{p})
		return nil
	}
	pods := func(l *lookup) error {
		return l.hubPods(context.Background(), ptr.To(peeredWith("far", "hub", "virtual")))
	}
	for name, row := range map[string]struct {
		look     func(*lookup) error
		change   func(*overlaid)
		sockets  []socket
		absent   string
		hidden   string // from consumers
		pending  bool
		unpeered bool
	}{
		"nothing":           {look: direct},
		"Services and pods": {look: direct, change: func(o *overlaid) { o.served("far", "n1").add("far", readyPod("p", "n1", "10.10.0.5")) }, sockets: []socket{socketOfWeb, socketOfPod}},
		"Services without cluster IP, or of other protocols": {look: direct, change: func(o *overlaid) {
			o.add("far", serviceOf("a", "", web), serviceOf("b", corev1.ClusterIPNone, web), serviceOf("c", "10.80.0.2", corev1.ServicePort{Port: 9, Protocol: corev1.ProtocolSCTP}))
		}},
		"a Service without endpoints": {look: direct, change: func(o *overlaid) {
			o.add("far", serviceOf("web", "10.80.0.1", web), given(addressOfWeb, "10.80.0.1", "10.70.0.9"))
		}},
		"a Service without address": {look: direct, change: func(o *overlaid) {
			o.add("far", serviceOf("web", "10.80.0.1", web), endpointsFor("web", "web-1", ptr.To(true), "n1", "http"))
		}, absent: "own→far: Liqo has given Service web no address on far yet", pending: true},
		"an address that leaves": {look: direct, change: func(o *overlaid) {
			o.served("far", "n1")
			ip := of[*ipamv1alpha1.IP](o, "far", "n")
			ip.DeletionTimestamp, ip.Finalizers = ptr.To(metav1.Now()), []string{"ipam.liqo.io/ip"}
		}, absent: "own→far: Liqo has given Service web no address on far yet", pending: true},
		"an address outside the ranges": {look: direct, change: func(o *overlaid) {
			o.served("far", "n1")
			of[*ipamv1alpha1.IP](o, "far", "n").Status.IP = "10.99.0.9"
		}, absent: "own→far: "},
		"a pod outside the ranges": {look: direct, change: func(o *overlaid) {
			o.add("far", readyPod("p", "n1", "10.99.0.5"), readyPod("q", "n1", "10.10.0.5"))
		}, sockets: []socket{socketOfPod}, absent: "own→far: "},
		"a pod of another namespace": {look: direct, change: func(o *overlaid) {
			p := readyPod("p", "n1", "10.10.0.5")
			p.Namespace = "m"
			o.add("far", p)
		}},
		"Services that may not be read":  {look: direct, change: func(o *overlaid) { o.denied["far"] = "Services" }, absent: "Sluice may not read Services on far"},
		"addresses that may not be read": {look: direct, change: func(o *overlaid) { o.served("far", "n1").denied["far"] = "addresses" }, absent: "Sluice may not read addresses on far"},
		"pods that may not be read":      {look: direct, change: func(o *overlaid) { o.served("far", "n1").denied["far"] = "pods" }, sockets: []socket{socketOfWeb}, absent: "Sluice may not read pods on far"},

		"no peering": {look: direct, change: func(o *overlaid) { delete(o.peerings, leg{"own", "far"}) }, absent: "own→far: they are not peered", unpeered: true},
		"a peering that ends": {look: direct, change: func(o *overlaid) {
			p := o.peerings[leg{"own", "far"}]
			p.DeletionTimestamp, p.Finalizers = ptr.To(metav1.Now()), []string{"x/y"}
		}, absent: "own→far: the peering ends", unpeered: true},
		"a peering that begins":  {look: direct, change: func(o *overlaid) { o.peerings[leg{"own", "far"}].Status.Conditions = nil }, absent: "own→far: the peering is not ready yet", unpeered: true},
		"a peering that changes": {look: direct, change: func(o *overlaid) { o.peerings[leg{"own", "far"}].Generation = 2 }, absent: "own→far: the peering is not ready yet", unpeered: true},
		"a peering that waits": {look: direct, change: func(o *overlaid) {
			v1alpha1.SetCondition(&o.peerings[leg{"own", "far"}].Status.Conditions, 0, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInProgress, "no tunnel")
		}, absent: "own→far: the peering is not ready: no tunnel", unpeered: true},
		"a peering that is refused": {look: direct, change: func(o *overlaid) {
			v1alpha1.SetCondition(&o.peerings[leg{"own", "far"}].Status.Conditions, 0, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRefused, "far is own")
		}, absent: "own→far: the peering is not ready: far is own", unpeered: true},
		"a peering that fails": {look: direct, change: func(o *overlaid) {
			v1alpha1.SetCondition(&o.peerings[leg{"own", "far"}].Status.Conditions, 0, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFailed, "Get https://10.0.0.5:6443: refused")
		}, hidden: "10.0.0.5", absent: "own→far: the peering is not ready", unpeered: true},
		"a peering without an id":      {look: direct, change: func(o *overlaid) { o.peerings[leg{"own", "far"}].Status.Provider = nil }, absent: "own→far: the peering does not contain the clusters' Liqo IDs yet", unpeered: true},
		"a peering without another id": {look: direct, change: func(o *overlaid) { o.peerings[leg{"own", "far"}].Status.Consumer = nil }, absent: "own→far: the peering does not contain the clusters' Liqo IDs yet", unpeered: true},
		"a gateway that is down": {look: direct, change: func(o *overlaid) {
			of[*networkingv1beta1.Connection](o, "own", tenantOfFar).Status.Value = networkingv1beta1.ConnectionError
		}, absent: "own→far: the gateway connection is Error instead of Connected, on own"},
		"a gateway that is down there": {look: direct, change: func(o *overlaid) {
			of[*networkingv1beta1.Connection](o, "far", liqo.TenantNamespace("own-id")).Status.Value = ""
		}, absent: "own→far: the gateway connection is Connecting instead of Connected, on far"},
		"no gateway":                     {look: direct, change: func(o *overlaid) { of[*networkingv1beta1.Connection](o, "own", tenantOfFar).Namespace = "other" }, absent: "own→far: there is no gateway connection on own"},
		"a gateway that may not be read": {look: direct, change: func(o *overlaid) { o.denied["far"] = "gateway connections" }, absent: "Sluice may not read gateway connections on far"},
		"no network":                     {look: direct, change: func(o *overlaid) { of[*networkingv1beta1.Configuration](o, "own", tenantOfFar).Namespace = "other" }, absent: "own→far: there is no network configuration on own"},
		"a network without ranges":       {look: direct, change: func(o *overlaid) { of[*networkingv1beta1.Configuration](o, "own", tenantOfFar).Status.Remote = nil }, absent: "own→far: own has not chosen the address ranges that stand for far yet"},
		"pods without ranges": {look: direct, change: func(o *overlaid) {
			of[*networkingv1beta1.Configuration](o, "own", tenantOfFar).Status.Remote.CIDR.Pod = nil
		}, absent: "own→far: own has not chosen the address ranges that stand for far yet"},
		"addresses without ranges": {look: direct, change: func(o *overlaid) {
			of[*networkingv1beta1.Configuration](o, "own", tenantOfFar).Status.Remote.CIDR.External = nil
		}, absent: "own→far: own has not chosen the address ranges that stand for far yet"},

		"pods on the node": {look: nodes, change: func(o *overlaid) {
			o.add("own", readyPod("p", "virtual", "10.60.0.5"), readyPod("q", "another", "10.60.0.6"))
		}, sockets: []socket{socketOfPod}},
		"a pod on the node with an address of its own": {look: nodes, change: func(o *overlaid) { o.add("own", readyPod("p", "virtual", "10.10.0.5")) },
			absent: "own→far: pod n/p has the address 10.10.0.5, which is outside the ranges that own knows of far"},
		"pods on the node that may not be read": {look: nodes, change: func(o *overlaid) { o.denied["own"] = "pods" }, absent: "Sluice may not read pods on own"},
		"a node without peering":                {look: nodes, change: func(o *overlaid) { delete(o.peerings, leg{"own", "far"}) }, absent: "own→far: they are not peered", unpeered: true},

		"Services on the hub":                      {look: services, change: func(o *overlaid) { o.served("hub", "virtual") }, sockets: []socket{socketOfWeb}},
		"Services on the hub that lead nowhere":    {look: services, change: func(o *overlaid) { delete(o.peerings, leg{"hub", "far"}); o.served("hub", "virtual") }, unpeered: true},
		"Services on the hub that lead to its own": {look: services, change: func(o *overlaid) { delete(o.peerings, leg{"hub", "far"}); o.served("hub", "n1") }, sockets: []socket{socketOfWeb}, unpeered: true},
		"Services on a hub that is not peered":     {look: services, change: func(o *overlaid) { delete(o.peerings, leg{"own", "hub"}) }, absent: "own→hub: they are not peered", unpeered: true},

		"pods behind the hub": {look: pods, change: func(o *overlaid) {
			o.add("hub", readyPod("p", "virtual", "10.60.0.5"), readyPod("q", "n1", "10.10.0.6"), given("p", "10.60.0.5", "10.70.0.7"))
		}, sockets: []socket{socketBehind}},
		"no pods behind the hub": {look: pods, change: func(o *overlaid) { o.denied["hub"] = "addresses" }},
		"a pod behind the hub with the address of its predecessor": {look: pods, change: func(o *overlaid) {
			o.add("hub", readyPod("p", "virtual", "10.60.0.5"), given("p", "10.60.0.4", "10.70.0.7"))
		}, absent: "own→hub: Liqo has given pod p no address on hub yet", pending: true},
		"a pod behind the hub with the address of another": {look: pods, change: func(o *overlaid) {
			o.add("hub", readyPod("p", "virtual", "10.60.0.5"), given("q", "10.60.0.5", "10.70.0.7"))
		}, absent: "own→hub: Liqo has given pod p no address on hub yet", pending: true},
		"a pod behind the hub with an address to come": {look: pods, change: func(o *overlaid) {
			o.add("hub", readyPod("p", "virtual", "10.60.0.5"), given("p", "10.60.0.5", ""))
		}, absent: "own→hub: Liqo has given pod p no address on hub yet", pending: true},
		"a pod behind the hub with an address outside": {look: pods, change: func(o *overlaid) {
			o.add("hub", readyPod("p", "virtual", "10.60.0.5"), given("p", "10.60.0.5", "10.99.0.7"))
		}, absent: "own→hub: "},
		"a hub that does not reach them":      {look: pods, change: func(o *overlaid) { delete(o.peerings, leg{"hub", "far"}) }, absent: "hub→far: they are not peered", unpeered: true},
		"pods behind a hub that is not there": {look: pods, change: func(o *overlaid) { delete(o.peerings, leg{"own", "hub"}) }, absent: "own→hub: they are not peered", unpeered: true},
		"addresses behind the hub, unread": {look: pods, change: func(o *overlaid) {
			o.add("hub", readyPod("p", "virtual", "10.60.0.5"))
			o.denied["hub"] = "addresses"
		}, absent: "Sluice may not read addresses on hub"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOverlaid()
			if row.change != nil {
				row.change(o)
			}
			l := o.lookup(t)
			l.recordAbsent(t.Context(), row.look(l))
			if !slices.Equal(l.sockets, row.sockets) || l.pending != row.pending || l.unpeered != row.unpeered {
				t.Errorf("found %+v, want %v, pending %t, unpeered %t", l.findings, row.sockets, row.pending, row.unpeered)
			}
			if got := strings.Join(l.absent, "; "); row.absent == "" && got != "" || !strings.HasPrefix(got, row.absent) || row.hidden != "" && strings.Contains(got, row.hidden) {
				t.Errorf("absent is %q, want %q", got, row.absent)
			}
		})
	}
}

// As many Services get an address as a binding lists hosts, and of the others it is said how many there are.
func TestServicesThatAreTooMany(t *testing.T) {
	for _, row := range []struct {
		services int
		absent   []string
	}{{maxHosts, nil}, {maxHosts + 2, []string{fmt.Sprintf("own→far: 2 more Services than the %d that get an address on far", maxHosts)}}} {
		o := newOverlaid()
		for i := range row.services {
			name, ip := fmt.Sprint("web-", i), fmt.Sprintf("10.80.%d.%d", i/250, i%250+1)
			o.add("far", serviceOf(name, ip, web), endpointsFor(name, name, ptr.To(true), "n1", "http"), given(addressName("sb-1", name, ip), ip, fmt.Sprintf("10.70.%d.%d", i/250, i%250+1)))
		}
		l := o.lookup(t)
		if err := l.direct(t.Context(), ptr.To(peeredWith("far", "", ""))); err != nil || len(l.sockets) != maxHosts || !slices.Equal(l.absent, row.absent) {
			t.Errorf("of %d Services %d are listed, absent are %q, error %v", row.services, len(l.sockets), l.absent, err)
		}
	}
}

// Namespaces on one hub are shared by the placements of one consumer.
func TestPlacementsOnTheSameHub(t *testing.T) {
	on := func(hub, consumer string) *v1alpha1.Placement {
		return &v1alpha1.Placement{Peering: &v1alpha1.PlacementPeering{Hub: hub, Consumer: consumer}}
	}
	for name, row := range map[string]struct {
		a, b *v1alpha1.Placement
		same bool
	}{
		"the same":         {on("hub", "own"), on("hub", "own"), true},
		"another hub":      {on("hub", "own"), on("hub-2", "own"), false},
		"another consumer": {on("hub", "own"), on("hub", "other"), false},
		"one is no peer":   {on("hub", "own"), &v1alpha1.Placement{}, false},
		"nor the first":    {&v1alpha1.Placement{}, on("hub", "own"), false},
		"none is a peer":   {&v1alpha1.Placement{}, &v1alpha1.Placement{}, false},
	} {
		if sameHub(row.a, row.b) != row.same {
			t.Errorf("%s: %t", name, !row.same)
		}
	}
}

// An address is made for each Service that is reached, once, and taken back when the Service is not there any more.
func TestPublishedAddresses(t *testing.T) {
	o := newOverlaid()
	stale, theirs := given("stale", "10.80.0.2", "10.70.0.8"), given("theirs", "10.80.0.3", "10.70.0.7")
	theirs.Labels[v1alpha1.LabelBinding] = "sb-2"
	o.add("far", serviceOf("web", "10.80.0.1", web), stale, theirs)
	l := o.lookup(t)
	for range 2 {
		l.recordAbsent(t.Context(), l.direct(t.Context(), ptr.To(peeredWith("far", "", ""))))
	}
	addresses, err := liqo.Addresses(t.Context(), l.members["far"])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range addresses {
		got = append(got, a.Name+" to "+a.Target())
		if a.Name == addressOfWeb && (a.Labels[v1alpha1.LabelBinding] != "sb-1" || a.Labels[v1alpha1.LabelHub] != "hub-1" || a.Annotations[annotationService] != "web") {
			t.Errorf("it is marked %v, %v", a.Labels, a.Annotations)
		}
	}
	if want := []string{addressOfWeb + " to 10.80.0.1", "theirs to 10.80.0.3"}; !slices.Equal(got, want) {
		t.Errorf("addresses %q, want %q", got, want)
	}
	fails := interceptor.NewClient(o.lookup(t).members["far"].(client.WithWatch), interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	}})
	l.members["far"] = fails
	if l.recordAbsent(t.Context(), l.direct(t.Context(), ptr.To(peeredWith("far", "", "")))); !slices.Contains(l.absent, "Sluice may not read addresses on far") {
		t.Errorf("an address that cannot be made: %q", l.absent)
	}
	l.binding.Status.AddressClusters = nil
	if _, err := l.publish(t.Context(), "far", l.members["far"], nil); err == nil {
		t.Error("addresses are made on a cluster that the binding does not name")
	}
}

// What could not be read is said without the messages of other organisations' API servers.
func TestReasonsForAbsence(t *testing.T) {
	pooled := deliveredTo(peeredWith("b", "a", "n"))
	pooled.Spec.Pool = &v1alpha1.PoolOrder{Pool: "pool"}
	for _, row := range []struct {
		err           error
		want, onAPool string // a pool's consumer knows own by name, and neither a nor b
	}{
		{absent("%s: they are not peered", leg{"a", "b"}), "a→b: they are not peered", "the pool's network is not ready"},
		{&absentError{"Liqo on a waits", "it waits"}, "Liqo on a waits", "it waits"},
		{&unreadError{cluster: "a", what: "pods", err: errors.New("secret")}, "pods on a could not be read", "pods on pool could not be read"},
		{&unreadError{cluster: "own", what: "pods", err: errors.New("secret")}, "pods on own could not be read", "pods on own could not be read"},
		{&unreadError{cluster: "a", what: "pods", err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("secret"))}, "Sluice may not read pods on a", "Sluice may not read pods on pool"},
		{&unreadError{cluster: "a", what: "pods", err: &meta.NoKindMatchError{}}, "Liqo is not installed on a", "Liqo is not installed on pool"},
		{errors.New("secret"), "something could not be read", "something could not be read"},
	} {
		for instance, want := range map[*v1alpha1.ServiceInstance]string{{}: row.want, pooled: row.onAPool} {
			l := &lookup{binding: &v1alpha1.ServiceBinding{}, instance: instance}
			for range 2 {
				l.recordAbsent(t.Context(), row.err)
			}
			if !slices.Equal(l.absent, []string{want}) {
				t.Errorf("%v: %q, want %q once", row.err, l.absent, want)
			}
		}
	}
}
