package bindings_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// withSite is a workload that everyone reaches.
const withSite = `
components:
- name: web
  ports: [{name: http, port: 80}, {name: admin, port: 9090}]
  container:
    image: web
    resources: {cpu: 10m, memory: 16Mi}
credentials: {host: "${components.web.host}"}
`

// publicAddresses: the endpoints and the credentials have the address at which everyone reaches the instance, and
// the endpoints follow when the operator changes it.
func publicAddresses(t *testing.T, f *fixture) {
	f.expose(t, 0)
	t.Run("of what the consumer runs", func(t *testing.T) { ownPublicAddresses(t, f) })
	h := f.deliverWorkload(t, withSite)
	plan := h.instance.Status.Delivered.Decision.Workload
	plan.Components[0].Ports[0].Reach = v1alpha1.ReachPublic
	plan.Credentials.Raw = []byte(`{"url": "${components.web.public.url}", "host": "${components.web.host}"}`)
	if err := h.Status().Update(t.Context(), h.instance); err != nil {
		t.Fatal(err)
	}
	b := f.bound(t, f.bind(t, h.instance, "1", ""))

	object, err := h.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(object.Reveal(), &got); err != nil {
		t.Fatal(err)
	}
	public, inside := v1alpha1.PublicLabel("web", h.instance.Name)+".apps.example", "web."+h.namespaceThere()+".svc"
	if diff := cmp.Diff(map[string]string{"url": "https://" + public, "host": inside}, got); diff != "" {
		t.Errorf("credentials: -want +got\n%s", diff)
	}
	want := []v1alpha1.Endpoint{{Host: inside, Ports: []string{"80", "9090"}, Protocol: "tcp"}, {Host: public, Ports: []string{"443"}, Protocol: "tcp"}}
	if diff := cmp.Diff(want, b.Status.Endpoints); diff != "" {
		t.Errorf("endpoints: -want +got\n%s", diff)
	}

	f.expose(t, 8443)
	eventually(t, "the endpoints have the new port", func(ctx context.Context) (bool, error) {
		err := f.Get(ctx, client.ObjectKeyFromObject(b), b)
		return slices.ContainsFunc(b.Status.Endpoints, func(e v1alpha1.Endpoint) bool { return e.Host == public && e.Ports[0] == "8443" }), err
	})
}

// expose gives the first member cluster a Gateway.
func (f *fixture) expose(t *testing.T, port int32) {
	t.Helper()
	cluster := &v1alpha1.MemberCluster{}
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: clusters[0]}, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Spec.Exposure = &v1alpha1.ClusterExposure{
		Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public"}, Domain: "apps.example", Port: port,
		TCP: &v1alpha1.ExposureTCP{First: 30500, Last: 30509},
	}
	if err := f.Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

// ownPublicAddresses: the endpoints of a namespace have the hosts of what the consumer runs there, by its names, as
// far as the cluster has a listener.
func ownPublicAddresses(t *testing.T, f *fixture) {
	instance := f.deliverTo(t, f.instance(t), v1alpha1.Placement{Cluster: clusters[0], PublicPorts: map[string]int32{"mqtt": 30501}})
	instance.Status.Delivered.Decision.Exposed = []v1alpha1.ExposedPort{
		{Name: "web", Port: 8080, Host: "market"}, {Name: "db", Port: 5432, AppProtocol: v1alpha1.AppProtocolTLS},
		{Name: "mqtt", Port: 1883, Host: "mqtt", AppProtocol: v1alpha1.AppProtocolTCP}, {Name: "own", Port: 80, Host: "www.acme.example"},
	}
	if err := f.Status().Update(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	b := f.bound(t, f.bind(t, instance, "own", "edit"))
	f.lists(t, b, "the API server, and the ports that the cluster has a listener for", serverOf(t, f, clusters[0]),
		v1alpha1.Endpoint{Host: "market.apps.example", Ports: []string{"443"}, Protocol: "tcp"},
		v1alpha1.Endpoint{Host: "mqtt.apps.example", Ports: []string{"30501"}, Protocol: "tcp"},
		v1alpha1.Endpoint{Host: "www.acme.example", Ports: []string{"443"}, Protocol: "tcp"},
	)
	services := map[string][]string{"web": {"tcp://market.apps.example:443"}, "mqtt": {"tcp://mqtt.apps.example:30501"}, "own": {"tcp://www.acme.example:443"}}
	if !cmp.Equal(b.Status.Services, services) {
		t.Errorf("the Services are %v, want %v", b.Status.Services, services)
	}
	f.unbound(t, b)
}
