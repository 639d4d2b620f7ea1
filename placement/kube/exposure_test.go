package kube_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
	"github.com/sluice-dev/sluice/test/gatewayapi"
)

// site is a workload that everyone reaches.
const site = `
parameters: {name: {type: string}}
components:
- name: web
  ports: [{name: http, port: 80, containerPort: 8080, reach: public, host: "${parameters.name}"}, {name: admin, port: 9090}]
  container:
    image: sluice.dev/web:1
    env: {SELF: "${components.web.public.url}"}
    resources: {cpu: 10m, memory: 16Mi}
`

// TestExposure shares a member cluster of its own, because the Gateway API is installed there only for
// the last tests. They run one after the other.
func TestExposure(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	d := withWorkload(t, site, `{"name": "shop"}`)

	// The placement filter leaves these out; they may change between the decision and the delivery.
	wantRefused(t, f.delivered(t, d), "components[web].ports[http]: the cluster has no Gateway for public ports")
	f.expose(t, &v1alpha1.ClusterExposure{
		Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public", Listener: "https", PodNamespace: "traefik"}, Domain: "apps.example",
	})
	err := f.driver().Deliver(t.Context(), d)
	wantRefused(t, err, "web: its public port cannot be reached on the chosen cluster")
	if !strings.Contains(err.Error(), clusterName+" lacks the kind HTTPRoute of gateway.networking.k8s.io: its operator has to install the Gateway API there") {
		t.Errorf("operators read %v", err)
	}

	if err := gatewayapi.Install(t.Context(), f.adminConfig); err != nil {
		t.Fatal(err)
	}
	waits := func(t *testing.T, d delivery.Delivery, consumer, operator string) {
		t.Helper()
		var err error
		var pending *delivery.PendingError
		_ = until(t, 10*time.Millisecond, time.Minute, func(ctx context.Context) (bool, error) {
			err = f.driver().Deliver(ctx, d)
			return !errors.As(err, &pending) || !strings.Contains(pending.Consumer, "pods ready"), nil
		})
		if !errors.As(err, &pending) || pending.Consumer != consumer || !strings.Contains(pending.Detail, operator) {
			t.Errorf("got %v, want a wait with %q for consumers and %q for operators", err, consumer, operator)
		}
	}
	const silent = "web: the Gateway does not serve its public port: "
	waits(t, d, silent+"it has not answered yet", "")
	f.answer(t, d, workload.HTTPRoutes, "Accepted=False NotAllowedByListeners")
	waits(t, d, silent+"Accepted is False (NotAllowedByListeners)", "the message of NotAllowedByListeners")
	f.answer(t, d, workload.HTTPRoutes, "Accepted=True Accepted", "ResolvedRefs=False BackendNotFound")
	waits(t, d, silent+"ResolvedRefs is False (BackendNotFound)", "the message of BackendNotFound")
	f.answer(t, d, workload.HTTPRoutes, "Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")
	f.runs(t, d)

	route := f.route(t, d, workload.HTTPRoutes)
	hosts, _, _ := unstructured.NestedStringSlice(route.Object, "spec", "hostnames")
	if len(hosts) != 1 || hosts[0] != "shop.apps.example" {
		t.Errorf("the route is for %v", hosts)
	}
	var secret corev1.Secret
	f.get(t, d, "web", &secret)
	if got := string(secret.Data["env.SELF"]); got != "https://shop.apps.example" {
		t.Errorf("the component believes to be at %s", got)
	}
	var policy networkingv1.NetworkPolicy
	f.get(t, d, "web", &policy)
	open := 0
	for _, rule := range policy.Spec.Ingress {
		for _, from := range rule.From {
			if from.NamespaceSelector == nil {
				continue
			}
			open++
			if from.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "traefik" || len(rule.Ports) != 1 || rule.Ports[0].Port.IntValue() != 8080 {
				t.Errorf("the Gateway is let in by %+v", rule)
			}
		}
	}
	if open != 1 {
		t.Errorf("%d rules let other namespaces in, want one", open)
	}

	t.Run("consumers write no routes", func(t *testing.T) {
		consumer := f.consumer(t, namespaceOf(d))
		taken := f.route(t, d, workload.HTTPRoutes)
		taken.SetName("other")
		taken.SetResourceVersion("")
		taken.SetUID("")
		taken.SetManagedFields(nil)
		if err := consumer.Create(t.Context(), taken); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("a binding with the role edit creates a route: %v", err)
		}
	})
	t.Run("a changed route is repaired", func(t *testing.T) {
		changed := f.route(t, d, workload.HTTPRoutes)
		if err := unstructured.SetNestedStringSlice(changed.Object, []string{"bank.apps.example"}, "spec", "hostnames"); err != nil {
			t.Fatal(err)
		}
		f.must(t, f.admin.Update(t.Context(), changed))
		err := f.driver().Observe(t.Context(), d)
		if err == nil || !strings.Contains(err.Error(), "HTTPRoute web was changed: .spec.hostnames[0] is bank.apps.example, not shop.apps.example") {
			t.Errorf("observe: %v", err)
		}
		waits(t, d, silent+"it has not answered yet", "")
		f.answer(t, d, workload.HTTPRoutes, "Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")
		f.runs(t, d)
	})
	t.Run("a cluster that was registered before says what to do", func(t *testing.T) {
		role := &rbacv1.ClusterRole{}
		f.must(t, f.admin.Get(t.Context(), key("", tenant.ClusterRole), role))
		before := role.DeepCopy()
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "httproutes") })
		f.must(t, f.admin.Update(t.Context(), role))
		const want = "Sluice may not write HTTPRoutes on cluster-a, which was registered before it had such public ports: its operator has to run `sluice cluster renew cluster-a`"
		err := until(t, 100*time.Millisecond, time.Minute, func(ctx context.Context) (bool, error) {
			err := f.driver().Deliver(ctx, d) // until the API server knows of the change
			return err != nil && strings.Contains(err.Error(), want), nil
		})
		if err != nil {
			t.Errorf("want %s", want)
		}
		before.ResourceVersion = role.ResourceVersion
		f.must(t, f.admin.Update(t.Context(), before))
	})
	t.Run("TLS is passed through", func(t *testing.T) {
		passed := strings.Replace(site, "reach: public,", "reach: public, appProtocol: tls,", 1)
		passed = strings.Replace(passed, "web.public.url", "web.public.host", 1)
		d := running(t, d, passed, `{"name": "shop"}`)
		wantRefused(t, f.delivered(t, d), "components[web].ports[http]: the cluster's Gateway passes no TLS through")
		f.expose(t, &v1alpha1.ClusterExposure{
			Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public", Listener: "https", PodNamespace: "traefik"}, Domain: "apps.example",
			TLS: &v1alpha1.ExposureTLS{Listener: "tls", Port: 8443},
		})
		waits(t, d, silent+"it has not answered yet", "")
		former := &unstructured.Unstructured{}
		former.SetGroupVersionKind(workload.HTTPRoutes)
		f.gone(t, d, "web", former)
		route := f.route(t, d, tlsRoutes)
		hosts, _, _ := unstructured.NestedStringSlice(route.Object, "spec", "hostnames")
		parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
		if len(hosts) != 1 || hosts[0] != "shop.apps.example" || len(parents) != 1 || parents[0].(map[string]any)["sectionName"] != "tls" {
			t.Errorf("the route is for %v by %v", hosts, parents)
		}
		f.answer(t, d, tlsRoutes, "Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")
		f.runs(t, d)
		f.must(t, f.admin.Delete(t.Context(), route))
		if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), "TLSRoute web") {
			t.Errorf("observe: %v", err)
		}
	})
	t.Run("a port is plain TCP", func(t *testing.T) {
		plain := strings.Replace(site, "reach: public,", "reach: public, appProtocol: tcp,", 1)
		plain = strings.Replace(plain, "web.public.url", "web.public.host}:${components.web.public.port", 1)
		d := running(t, d, plain, `{"name": "shop"}`)
		wantRefused(t, f.delivered(t, d), "components[web].ports[http]: the cluster's Gateway has no ports of plain TCP")
		f.expose(t, &v1alpha1.ClusterExposure{
			Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public", Listener: "https", PodNamespace: "traefik"}, Domain: "apps.example",
			TCP: &v1alpha1.ExposureTCP{First: 30500, Last: 30501},
		})
		wantRefused(t, f.delivered(t, d), "components[web].ports[http]: the placement has no port of the cluster's Gateway for it")
		d.Workload.Ports = map[string]int32{"web": 30501}
		waits(t, d, silent+"it has not answered yet", "")
		route := f.route(t, d, workload.TCPRoutes)
		parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
		if _, has, _ := unstructured.NestedSlice(route.Object, "spec", "hostnames"); has || len(parents) != 1 || parents[0].(map[string]any)["sectionName"] != "tcp-30501" {
			t.Errorf("the route is %v", route.Object["spec"])
		}
		f.answer(t, d, workload.TCPRoutes, "Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")
		f.runs(t, d)
		f.get(t, d, "web", &secret)
		if got := string(secret.Data["env.SELF"]); got != "shop.apps.example:30501" {
			t.Errorf("the component believes to be at %s", got)
		}
		f.must(t, f.admin.Delete(t.Context(), route))
		if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), "TCPRoute web") {
			t.Errorf("observe: %v", err)
		}
	})
	t.Run("a host has a record", func(t *testing.T) {
		e := &v1alpha1.ClusterExposure{
			Gateway: v1alpha1.ExposureGateway{Namespace: "infra", Name: "public", PodNamespace: "traefik"}, Domain: "apps.example",
			DNS: &v1alpha1.ExposureDNS{Targets: []string{"203.0.113.7"}},
		}
		f.expose(t, e)
		d := running(t, d, site, `{"name": "shop"}`)
		err := f.delivered(t, d)
		wantRefused(t, err, "web: its public port cannot be reached on the chosen cluster")
		if !strings.Contains(err.Error(), clusterName+" lacks the kind DNSEndpoint of externaldns.k8s.io: its operator has to install external-dns there") {
			t.Errorf("operators read %v", err)
		}
		f.must(t, gatewayapi.InstallDNS(t.Context(), f.adminConfig))
		waits(t, d, silent+"it has not answered yet", "")
		f.answer(t, d, workload.HTTPRoutes, "Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")
		f.runs(t, d)
		record := f.route(t, d, workload.DNSEndpoints)
		got, _, _ := unstructured.NestedSlice(record.Object, "spec", "endpoints")
		if want := []any{map[string]any{"dnsName": "shop.apps.example", "recordType": "A", "targets": []any{"203.0.113.7"}}}; !reflect.DeepEqual(got, want) {
			t.Errorf("the record is %v, want %v", got, want)
		}
		e.DNS.Targets = []string{"lb.example.org"}
		f.expose(t, e)
		if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), "DNSEndpoint web was changed") {
			t.Errorf("observe: %v", err)
		}
		f.runs(t, d)
		e.DNS = nil
		f.expose(t, e)
		f.runs(t, d)
		f.gone(t, d, "web", record)
	})
	t.Run("consumers make public what they run", f.consumersPods)
	t.Run("a port is given back", f.aPortIsGivenBack)
	t.Run("a port that is no longer public has no route", func(t *testing.T) {
		closed := strings.NewReplacer(`, reach: public, host: "${parameters.name}"`, "", `"${components.web.public.url}"`, "nowhere").Replace(site)
		d := running(t, d, closed, `{"name": "shop"}`)
		f.runs(t, d)
		gone := &unstructured.Unstructured{}
		gone.SetGroupVersionKind(workload.HTTPRoutes)
		f.gone(t, d, "web", gone)
	})
}

// consumersPods makes two ports of a consumer's own pods public, then one, then none.
func (f *fixture) consumersPods(t *testing.T) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	web, chat := v1alpha1.ExposedPort{Name: "web", Port: 8080, Host: "market"}, v1alpha1.ExposedPort{Name: "chat", Port: 9000}
	f.deliver(t, d)
	consumer := f.consumer(t, namespaceOf(d))
	own := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(d), Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	f.must(t, consumer.Create(t.Context(), own))

	d = exposing(t, d, web, chat)
	var pending *delivery.PendingError
	if err := f.driver().Deliver(t.Context(), d); !errors.As(err, &pending) || !strings.Contains(pending.Consumer, "web: the Gateway does not serve its public port: it has not answered yet") {
		t.Fatalf("got %v, want a wait for the Gateway", err)
	}
	f.answer(t, d, workload.HTTPRoutes, "Accepted=True Accepted", "ResolvedRefs=True ResolvedRefs")
	d = exposing(t, d, web)
	f.runs(t, d)
	var service corev1.Service
	f.get(t, d, "sluice-web", &service)
	pods := map[string]string{v1alpha1.LabelComponent: "web"}
	if !maps.Equal(service.Spec.Selector, pods) || service.Spec.Type != corev1.ServiceTypeClusterIP {
		t.Errorf("the Service is %+v", service.Spec)
	}
	var policy networkingv1.NetworkPolicy
	f.get(t, d, "web", &policy)
	last := policy.Spec.Ingress[len(policy.Spec.Ingress)-1]
	if !maps.Equal(policy.Spec.PodSelector.MatchLabels, pods) || last.From[0].NamespaceSelector == nil || len(last.Ports) != 1 || last.Ports[0].Port.IntValue() != 8080 {
		t.Errorf("the policy is %+v", policy.Spec)
	}
	route := f.route(t, d, workload.HTTPRoutes)
	f.gone(t, d, "chat", route)
	f.gone(t, d, "sluice-chat", &corev1.Service{})

	f.must(t, consumer.Delete(t.Context(), &service))
	if err := f.driver().Observe(t.Context(), d); err == nil || !strings.Contains(err.Error(), "Service sluice-web") {
		t.Errorf("observe: %v", err)
	}
	f.runs(t, d)

	d = exposing(t, d)
	f.deliver(t, d)
	for _, o := range []client.Object{route, &policy} {
		f.gone(t, d, "web", o)
	}
	f.gone(t, d, "sluice-web", &service)
	f.get(t, d, "web", own)
	if err := f.driver().Observe(t.Context(), d); err != nil {
		t.Errorf("observe: %v", err)
	}
}

// expose gives the member cluster a Gateway.
func (f *fixture) expose(t *testing.T, exposure *v1alpha1.ClusterExposure) {
	t.Helper()
	cluster := &v1alpha1.MemberCluster{}
	f.must(t, f.hub.Get(t.Context(), key(f.hubNamespace, clusterName), cluster))
	cluster.Spec.Exposure = exposure
	f.must(t, f.hub.Update(t.Context(), cluster))
}

// tlsRoutes are in the version of the Gateway API's release that is installed.
var tlsRoutes = schema.GroupVersionKind{Group: workload.TLSRoutes.Group, Version: "v1alpha2", Kind: workload.TLSRoutes.Kind}

func (f *fixture) route(t *testing.T, d delivery.Delivery, kind schema.GroupVersionKind) *unstructured.Unstructured {
	t.Helper()
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(kind)
	f.get(t, d, "web", route)
	return route
}

// answer writes the status of the route as a Gateway's controller does; each condition is
// "Type=Status Reason".
func (f *fixture) answer(t *testing.T, d delivery.Delivery, kind schema.GroupVersionKind, conditions ...string) {
	t.Helper()
	route := f.route(t, d, kind)
	var all []any
	for _, c := range conditions {
		condition, reason, _ := strings.Cut(c, " ")
		kind, status, _ := strings.Cut(condition, "=")
		all = append(all, map[string]any{
			"type": kind, "status": status, "reason": reason, "message": "the message of " + reason,
			"observedGeneration": route.GetGeneration(), "lastTransitionTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z"),
		})
	}
	parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
	err := unstructured.SetNestedSlice(route.Object, []any{map[string]any{
		"controllerName": "example.org/gateway", "parentRef": parents[0], "conditions": all,
	}}, "status", "parents")
	if err != nil {
		t.Fatal(err)
	}
	f.must(t, f.admin.Status().Update(t.Context(), route, client.FieldOwner("gateway")))
}

func theInternetIsOutOfReach(t *testing.T, f *fixture) {
	d := newDelivery(t, "cpu", "1", "memory", "1Gi")
	driver := f.driver()
	driver.ProbeAddresses = []string{"10.1.2.3/32"}
	for _, row := range []struct{ allowed, probe bool }{{false, false}, {true, false}, {false, true}, {false, false}} {
		driver.InternetEgress = row.allowed
		delete(d.Instance.Labels, v1alpha1.LabelMeasure)
		if row.probe {
			d.Instance.Labels = map[string]string{v1alpha1.LabelMeasure: d.Placement.Cluster}
		}
		if err := driver.Deliver(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		var policy networkingv1.NetworkPolicy
		if err := f.admin.Get(t.Context(), key(namespaceOf(d), "sluice-allow"), &policy); err != nil {
			t.Fatal(err)
		}
		reachable := slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil })
		})
		if reachable != (row.allowed || row.probe) {
			t.Errorf("%+v: internet egress in the policy is %v", row, reachable)
		}
		broker := slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
			return slices.ContainsFunc(rule.To, func(peer networkingv1.NetworkPolicyPeer) bool {
				return peer.IPBlock != nil && peer.IPBlock.CIDR == "10.1.2.3/32"
			})
		})
		if broker != row.probe {
			t.Errorf("%+v: egress to the broker is %v", row, broker)
		}
	}
}
