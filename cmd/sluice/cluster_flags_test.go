package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// describedBy returns a cluster after `cluster add` with these flags.
func describedBy(t *testing.T, cluster *v1alpha1.MemberCluster, args ...string) (*v1alpha1.MemberCluster, error) {
	t.Helper()
	f, cmd := &clusterAddFlags{}, &cobra.Command{}
	f.bind(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	cluster = cluster.DeepCopy()
	return cluster, f.describe(cluster, givenOf(cmd))
}

// TestClusterAddRefuses: flags that exclude each other or have senseless values.
func TestClusterAddRefuses(t *testing.T) {
	liqo := []string{"--driver", "liqo"}
	for _, row := range []struct {
		name, says string
		flags      []string
	}{
		{"requirements of no offering", "go with --offering", []string{"--requires", "LabelCredential"}},
		{"grace of no offering", "go with --offering", []string{"--grace", "1h"}},
		{"an offering of nobody", "--offering needs --provider", []string{"--offering", "https://a.example/#b"}},
		{"a management cluster that may make nothing", "--driver capi needs --capacity", []string{"--driver", "capi"}},
		{"nodes beside what is declared", "--reader nodes goes without --capacity", []string{"--reader", "nodes", "--capacity", "cpu=1"}},
		{"an external reader beside what is declared", "--reader external goes without --capacity", []string{"--reader", "external", "--capacity", "cpu=1"}},
		{"an external reader without address", "needs --reader-address", []string{"--reader", "external"}},
		{"an address of no external reader", "go with --reader external", []string{"--reader", "nodes", "--reader-address", "a:1"}},
		{"a period of no length", "want whole seconds", []string{"--reader-address", "a:1", "--reader-period", "10ms"}},
		{"authorities that are not there", "--reader-ca-file: open", []string{"--reader-address", "a:1", "--reader-ca-file", "/nowhere"}},
		{"nothing declared", "--reader declared needs --capacity", []string{"--reader", "declared"}},
		{"a capacity that is no amount", "--capacity cpu=lots: want an amount", []string{"--driver", "capi", "--capacity", "cpu=lots"}},
		{"a capacity below nothing", "--capacity cpu=-1", []string{"--driver", "capi", "--capacity", "cpu=-1"}},
		{"less sold than there is", "--oversubscribe cpu=0.9: want a number of at least 1", []string{"--oversubscribe", "cpu=0.9"}},
		{"a price that is none", "--price cpu=cheap", []string{"--price", "cpu=cheap"}},
		{"a price below nothing", "--price cpu=-1", []string{"--price", "cpu=-1"}},
		{"a price of no resource", `--price: "CPU" is no resource`, []string{"--price", "CPU=0.05"}},
		{"a capacity of no resource", `--capacity: "mem" is no resource`, []string{"--driver", "capi", "--capacity", "mem=1Gi"}},
		{"a sale of no resource", `"mem" is no resource`, []string{"--sell", "mem=1Gi"}},
		{"nothing hidden", `"gpu" is no resource`, []string{"--hide", "gpu"}},
		{"a price that cannot be counted", "--price: perHour: cpu: 10G: want", []string{"--price", "cpu=10G"}},
		{"a taint without effect", "want key=value:Effect", []string{"--taint", "a=b"}},
		{"a taint with an unknown effect", "the effect is NoSchedule", []string{"--taint", "a=b:Never"}},
		{"a hub without Liqo", "go with --driver liqo", []string{"--hub"}},
		{"a consumer's own as a hub", "no hub for others", append(liqo, "--hub", "--consumer", "cf")},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, err := describedBy(t, &v1alpha1.MemberCluster{}, row.flags...); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("got %v, want %q", err, row.says)
			}
		})
	}
}

// TestClusterAddAgain: only the given flags change a registered cluster.
func TestClusterAddAgain(t *testing.T) {
	now := metav1.Now()
	registered := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{UID: "uid", Labels: map[string]string{"disk": "ssd"}},
		Spec: v1alpha1.MemberClusterSpec{
			Driver: v1alpha1.DriverLiqo, Provider: "acme", Region: "eu-de", Zone: "a", Tier: v1alpha1.TierEdge, ConsumerServer: "https://public.example",
			Unschedulable: true, Latencies: []v1alpha1.MeasuredLatency{{From: "stockholm"}},
			Taints:           []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: v1alpha1.TaintDrain, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now}},
			Location:         &v1alpha1.Location{Latitude: "52", Longitude: "13"},
			Prices:           &v1alpha1.PriceList{Currency: "SEK", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.4")}},
			Oversubscription: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("1.5")},
			Trust:            &v1alpha1.TrustRequirements{Offering: "https://a.example/#b", Types: []string{"LabelCredential"}, GraceSeconds: 3600},
			Liqo:             &v1alpha1.LiqoCluster{Namespace: "liqo-system", GatewayService: corev1.ServiceTypeNodePort, Modules: []v1alpha1.LiqoModule{v1alpha1.ModuleNetworking}},
			Sell:             &v1alpha1.Sale{AtMost: corev1.ResourceList{"cpu": resource.MustParse("8")}, Hide: []corev1.ResourceName{"nvidia.com/gpu"}},
			Consumers:        []v1alpha1.ConsumerReference{{Platform: "cf"}},
			Exposure: &v1alpha1.ClusterExposure{
				Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public", Listener: "https", PodNamespace: "traefik"}, Domain: "apps.example",
				Protocol: v1alpha1.ExposureHTTPS, Port: 8443, TLS: &v1alpha1.ExposureTLS{Listener: "passthrough", Port: 8444}, DNS: &v1alpha1.ExposureDNS{Targets: []string{"lb.example.org"}},
			},
		},
	}
	type spec = v1alpha1.MemberClusterSpec
	for _, row := range []struct {
		flags   string
		changes func(*v1alpha1.MemberCluster, *spec)
	}{
		{"", func(*v1alpha1.MemberCluster, *spec) {}},
		{"--region us-va", func(_ *v1alpha1.MemberCluster, s *spec) { s.Region = "us-va" }},
		{"--provider other", func(_ *v1alpha1.MemberCluster, s *spec) { s.Provider = "other" }},
		{"--zone=", func(_ *v1alpha1.MemberCluster, s *spec) { s.Zone = "" }},
		{"--tier cloud", func(_ *v1alpha1.MemberCluster, s *spec) { s.Tier = v1alpha1.TierCloud }},
		{"--consumer-server https://other.example", func(_ *v1alpha1.MemberCluster, s *spec) { s.ConsumerServer = "https://other.example" }},
		{"--label net=10g", func(c *v1alpha1.MemberCluster, _ *spec) { c.Labels["net"] = "10g" }},
		{"--taint x:NoSchedule", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Taints = []corev1.Taint{s.Taints[1], {Key: "x", Effect: corev1.TaintEffectNoSchedule}}
		}},
		{"--price memory=0.1", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Prices.PerHour = map[corev1.ResourceName]resource.Quantity{"memory": resource.MustParse("0.1")}
		}},
		{"--currency USD", func(_ *v1alpha1.MemberCluster, s *spec) { s.Prices.Currency = "USD" }},
		{"--oversubscribe cpu=2", func(_ *v1alpha1.MemberCluster, s *spec) { s.Oversubscription["cpu"] = resource.MustParse("2") }},
		{"--latitude 48 --longitude 2", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Location = &v1alpha1.Location{Latitude: "48", Longitude: "2"}
		}},
		{"--sell share=50", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Sell = &v1alpha1.Sale{Share: 50, Hide: []corev1.ResourceName{"nvidia.com/gpu"}}
		}},
		{"--hide amd.com/gpu,squat.ai/tun", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Sell.Hide = []corev1.ResourceName{"amd.com/gpu", "squat.ai/tun"}
		}},
		{"--hide=", func(_ *v1alpha1.MemberCluster, s *spec) { s.Sell.Hide = nil }},
		{"--capacity cpu=8,pods=10", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Capacity = corev1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("10")}
		}},
		{"--reader-address reader.example:443 --reader-period 10s", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Reader = &v1alpha1.ExternalReader{Address: "reader.example:443", Protocol: v1alpha1.ReaderProtocolV1, PeriodSeconds: 10}
		}},
		{"--grace 2h", func(_ *v1alpha1.MemberCluster, s *spec) { s.Trust.GraceSeconds = 7200 }},
		{"--requires GaiaX", func(_ *v1alpha1.MemberCluster, s *spec) { s.Trust.Types = []string{"GaiaX"} }},
		{"--offering=", func(_ *v1alpha1.MemberCluster, s *spec) { s.Trust = nil }},
		{"--gateway-service LoadBalancer", func(_ *v1alpha1.MemberCluster, s *spec) { s.Liqo.GatewayService = corev1.ServiceTypeLoadBalancer }},
		{"--liqo-namespace liqo", func(_ *v1alpha1.MemberCluster, s *spec) { s.Liqo.Namespace = "liqo" }},
		{"--consumer cf/acme", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Consumers = []v1alpha1.ConsumerReference{{Platform: "cf", Organization: "acme"}}
		}},
		{"--public-gateway=", func(_ *v1alpha1.MemberCluster, s *spec) { s.Exposure = nil }},
		{"--public-gateway infra/other", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Exposure.Gateway.Name, s.Exposure.Gateway.Listener = "other", ""
		}},
		{"--public-tls tls:8443", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Exposure.TLS = &v1alpha1.ExposureTLS{Listener: "tls", Port: 8443}
		}},
		{"--public-dns 203.0.113.7,2001:db8::1", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Exposure.DNS = &v1alpha1.ExposureDNS{Targets: []string{"203.0.113.7", "2001:db8::1"}}
		}},
		{"--public-dns=", func(_ *v1alpha1.MemberCluster, s *spec) { s.Exposure.DNS = nil }},
		{"--public-tls=", func(_ *v1alpha1.MemberCluster, s *spec) { s.Exposure.TLS = nil }},
		{"--public-domain a.example --public-port 443", func(_ *v1alpha1.MemberCluster, s *spec) { s.Exposure.Domain, s.Exposure.Port = "a.example", 443 }},
		{"--public-protocol http --public-pods=", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Exposure.Protocol, s.Exposure.Gateway.PodNamespace = v1alpha1.ExposureHTTP, ""
		}},
		{"--driver kube", func(_ *v1alpha1.MemberCluster, s *spec) {
			s.Driver, s.Liqo, s.Consumers = v1alpha1.DriverKube, nil, nil
		}},
	} {
		t.Run(row.flags, func(t *testing.T) {
			got, err := describedBy(t, registered, strings.Fields(row.flags)...)
			if err != nil {
				t.Fatal(err)
			}
			want := registered.DeepCopy()
			row.changes(want, &want.Spec)
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestClusterAddExposes: a Gateway goes with a domain, and is written as its flags say.
func TestClusterAddExposes(t *testing.T) {
	got, err := describedBy(t, &v1alpha1.MemberCluster{}, "--public-gateway", "infra/public/https", "--public-domain", "apps.example", "--public-port", "8443")
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.ClusterExposure{
		Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public", Listener: "https"}, Domain: "apps.example", Protocol: v1alpha1.ExposureHTTPS, Port: 8443,
	}
	if !equality.Semantic.DeepEqual(got.Spec.Exposure, want) {
		t.Errorf("got %+v, want %+v", got.Spec.Exposure, want)
	}
	got, err = describedBy(t, got, "--public-tcp", "30500-30503", "--public-consumer-domain", "acme.example=cf/acme/web@acme", "--public-consumer-domain", "b.example=cf")
	if err != nil {
		t.Fatal(err)
	}
	want.TCP = &v1alpha1.ExposureTCP{First: 30500, Last: 30503}
	want.Domains = []v1alpha1.ExposureDomain{
		{Name: "acme.example", Consumers: []v1alpha1.ConsumerReference{{Platform: "cf", Organization: "acme", Space: "web"}}, Listener: "acme"},
		{Name: "b.example", Consumers: []v1alpha1.ConsumerReference{{Platform: "cf"}}},
	}
	if !equality.Semantic.DeepEqual(got.Spec.Exposure, want) {
		t.Errorf("got %+v, want %+v", got.Spec.Exposure, want)
	}
	if got, err = describedBy(t, got, "--public-tcp", "", "--public-consumer-domain", ""); err != nil || got.Spec.Exposure.TCP != nil || got.Spec.Exposure.Domains != nil {
		t.Errorf("got %+v, %v", got.Spec.Exposure, err)
	}
	for _, flags := range []string{"--public-gateway a/b --public-domain x --public-tcp 30500", "--public-gateway a/b --public-domain x --public-tcp 3-2", "--public-gateway a/b --public-domain x --public-consumer-domain y", "--public-gateway infra", "--public-gateway infra/public", "--public-domain apps.example", "--public-gateway a/b/c/d --public-domain x", "--public-gateway a/b --public-domain x --public-tls tls"} {
		if _, err := describedBy(t, &v1alpha1.MemberCluster{}, strings.Fields(flags)...); err == nil {
			t.Errorf("%s is accepted", flags)
		}
	}
}

// TestClusterAddNew: a new cluster has what every cluster has.
func TestClusterAddNew(t *testing.T) {
	got, err := describedBy(t, &v1alpha1.MemberCluster{}, "--price", "cpu=0.04")
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.Driver != v1alpha1.DriverKube || got.Spec.Tier != v1alpha1.TierCloud || got.Spec.Prices.Currency != "EUR" || got.Spec.Liqo != nil {
		t.Errorf("got %+v", got.Spec)
	}
	got, err = describedBy(t, &v1alpha1.MemberCluster{}, "--driver", "liqo", "--consumer", "cf/acme", "--consumer", "k8s")
	if err != nil {
		t.Fatal(err)
	}
	if l := got.Spec.Liqo; l == nil || l.Namespace != "liqo" || l.GatewayService != corev1.ServiceTypeLoadBalancer || len(got.Spec.Consumers) != 2 {
		t.Errorf("got %+v", got.Spec)
	}
}
