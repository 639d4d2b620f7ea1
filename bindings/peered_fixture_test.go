package bindings_test

import (
	"context"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"testing"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/overlay"
	"github.com/sluice-dev/sluice/test/controlplane"
)

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
