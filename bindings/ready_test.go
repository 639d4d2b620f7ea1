package bindings

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/internal/liqo"
)

func serviceOf(name, clusterIP string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Ports: ports}}
}

// endpointsFor returns a slice of a Service with one endpoint, on a node, for the ports of these names.
func endpointsFor(service, name string, ready *bool, node string, ports ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.10.0.5"}, Conditions: discoveryv1.EndpointConditions{Ready: ready}, NodeName: &node}},
	}
	for _, port := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(port)})
	}
	return slice
}

// A Service has those of its ports that have a ready endpoint; an endpoint that does not say so is ready.
func TestReadyServices(t *testing.T) {
	http, dns, both := corev1.ServicePort{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, corev1.ServicePort{Name: "other", Port: 81, Protocol: corev1.ProtocolTCP}
	leaving := serviceOf("leaving", "10.80.0.9", http)
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
	elsewhere := serviceOf("elsewhere", "10.80.0.8", http)
	elsewhere.Namespace = "m"
	udp := endpointsFor("web", "web-3", ptr.To(true), "n1")
	udp.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP)}, {Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolUDP)}}
	c := fake.NewClientBuilder().WithScheme(liqo.Scheme).WithObjects(
		serviceOf("web", "10.80.0.1", http, dns, both), endpointsFor("web", "web-1", ptr.To(true), "n1", "http"), endpointsFor("web", "web-2", nil, "n1", "http"), udp,
		endpointsFor("web", "web-4", ptr.To(false), "n1", "other"),
		serviceOf("lost", "10.80.0.2", http), endpointsFor("lost", "lost-1", ptr.To(true), "n2", "http"),
		serviceOf("idle", "10.80.0.3", http), serviceOf("passed", "10.80.0.4", http), leaving, elsewhere,
	).Build()
	pass := func(s *corev1.Service) bool { return s.Name != "passed" }
	for name, row := range map[string]struct {
		pass      func(*corev1.Service) bool
		reachable func(*discoveryv1.Endpoint) bool
		want      []string
	}{
		"all nodes": {pass, nil, []string{"idle []", "lost [http]", "web [http dns]"}},
		"one node":  {pass, func(e *discoveryv1.Endpoint) bool { return *e.NodeName == "n1" }, []string{"idle []", "lost []", "web [http dns]"}},
		"nothing":   {func(*corev1.Service) bool { return false }, nil, nil},
	} {
		found, err := readyServices(t.Context(), c, "n", row.pass, row.reachable)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range found {
			var ports []string
			for _, p := range r.ports {
				ports = append(ports, p.Name)
			}
			got = append(got, fmt.Sprint(r.Name, " ", ports))
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}

// readyPod runs on a node, with an address and a port.
func readyPod(name, node, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
		Status:     corev1.PodStatus{PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

func TestReadyPods(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"ready":                  {func(*corev1.Pod) {}, true},
		"being deleted":          {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, false},
		"in its node's network":  {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, false},
		"without an address":     {func(p *corev1.Pod) { p.Status.PodIP = "" }, false},
		"not ready":              {func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionFalse }, false},
		"ready in another sense": {func(p *corev1.Pod) { p.Status.Conditions[1].Type = corev1.ContainersReady }, false},
	} {
		p := readyPod("p", "n", "10.10.0.5")
		row.change(p)
		if got := isReady(p); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	p := readyPod("p", "n", "10.10.0.5")
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {ContainerPort: 9, Protocol: corev1.ProtocolSCTP}}})
	want := []socket{{host: "h", port: "8080", protocol: "tcp"}, {host: "h", port: "53", protocol: "udp"}}
	if got := podSockets(p, "h"); !slices.Equal(got, want) {
		t.Errorf("sockets %v, want %v", got, want)
	}
}
