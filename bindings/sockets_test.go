package bindings

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

func TestEndpointsOfSockets(t *testing.T) {
	for _, test := range []struct {
		name    string
		sockets []socket
		want    []v1alpha1.Endpoint
	}{
		{"nothing", nil, nil},
		{"one host", []socket{{host: "h", port: "80", protocol: "tcp"}, {host: "h", port: "443", protocol: "tcp"}}, []v1alpha1.Endpoint{
			{Host: "h", Ports: []string{"80", "443"}, Protocol: "tcp"},
		}},
		{"the same ports by both protocols", []socket{{host: "h", port: "53", protocol: "udp"}, {host: "h", port: "53", protocol: "tcp"}}, []v1alpha1.Endpoint{
			{Host: "h", Ports: []string{"53"}, Protocol: "all"},
		}},
		{"another host after such a one", []socket{{host: "h", port: "53", protocol: "udp"}, {host: "h", port: "53", protocol: "tcp"}, {host: "g", port: "1", protocol: "tcp"}}, []v1alpha1.Endpoint{
			{Host: "h", Ports: []string{"53"}, Protocol: "all"}, {Host: "g", Ports: []string{"1"}, Protocol: "tcp"},
		}},
		{"other ports by the other protocol", []socket{{host: "h", port: "53", protocol: "udp"}, {host: "g", port: "1", protocol: "tcp"}, {host: "h", port: "80", protocol: "tcp"}}, []v1alpha1.Endpoint{
			{Host: "h", Ports: []string{"80"}, Protocol: "tcp"}, {Host: "h", Ports: []string{"53"}, Protocol: "udp"}, {Host: "g", Ports: []string{"1"}, Protocol: "tcp"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := endpointsOf(test.sockets); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestSocketsOf: of the ports of a host those that OSB's endpoints can have.
func TestSocketsOf(t *testing.T) {
	got := socketsOf("h", "web", []corev1.ServicePort{
		{Port: 80}, {Port: 0, Protocol: corev1.ProtocolTCP}, {Port: 1, Protocol: corev1.ProtocolUDP}, {Port: 99, Protocol: corev1.ProtocolSCTP},
	})
	want := []socket{{"h", "80", "tcp", "web"}, {"h", "1", "udp", "web"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestServicesOfSockets(t *testing.T) {
	got := servicesOf([]socket{
		{host: "10.0.0.1", port: "80", protocol: "tcp", service: "web"}, {host: "fd00::1", port: "53", protocol: "udp", service: "dns"},
		{host: "10.0.0.2", port: "80", protocol: "tcp", service: "web"}, {host: "10.0.0.3", port: "80", protocol: "tcp"},
		{host: "10.0.0.1", port: "80", protocol: "tcp", service: "web"},
	})
	want := map[string][]string{"web": {"tcp://10.0.0.1:80", "tcp://10.0.0.2:80"}, "dns": {"udp://[fd00::1]:53"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBoundedHosts(t *testing.T) {
	var sockets []socket
	for i := range maxHosts + 3 {
		for _, port := range []string{"80", "443"} {
			sockets = append(sockets, socket{host: fmt.Sprint("h", i), port: port, protocol: "tcp"})
		}
	}
	kept, cut := bounded(append(sockets, socket{host: "h0", port: "22", protocol: "tcp"}))
	if endpoints := endpointsOf(kept); cut != 3 || len(endpoints) != maxHosts || len(endpoints[0].Ports) != 3 {
		t.Errorf("%d hosts, the first with %v, and %d cut, want %d with all their ports, and 3", len(endpoints), endpoints[0].Ports, cut, maxHosts)
	}
	if kept, cut := bounded(sockets[:4]); len(kept) != 4 || cut != 0 {
		t.Errorf("of four sockets %d were kept, and %d hosts cut", len(kept), cut)
	}
}

func TestSentence(t *testing.T) {
	for reasons, want := range map[string]string{"": "", "a": "a", "a b c d e": "a; b; c; d; e", "a b c d e f": "a; b; c; d; e; and 1 more", "a a b c d e f g": "a; b; c; d; e; and 2 more"} {
		if got := sentence(strings.Fields(reasons)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A consumer's cluster is given an address for a component where that runs, and none for the Services of
// its name that lead there from other clusters.
func TestServicesOfAPlacement(t *testing.T) {
	of := func(component string) *corev1.Service {
		s := &corev1.Service{}
		if component != "" {
			s.Labels = map[string]string{v1alpha1.LabelComponent: component}
		}
		return s
	}
	web, all := servesOn(&v1alpha1.Placement{Components: []string{"web"}}), servesOn(&v1alpha1.Placement{})
	if !web(of("web")) || web(of("db")) || !web(of("")) || !all(of("db")) {
		t.Error("Services are taken for those of other components")
	}
}
