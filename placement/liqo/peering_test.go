package liqo_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/liqo"
)

// TestOnClusters shares two control planes among tests that each have a pair of clusters; those that take
// longest are first.
func TestOnClusters(t *testing.T) {
	f := newFixture(t)
	t.Run("a consumer joins by invitation", func(t *testing.T) {
		t.Parallel() // on a plane of its own, with no rights of Sluice but those that accepting grants
		aConsumerJoinsByInvitation(f.between(t, installed(t, "theirs", newPlane(t, "invited")), f.join(t, "eu", f.planes[1])))
	})
	for _, test := range []struct {
		name, pair string
		run        func(*pair)
	}{
		{"linked components are reached by the consumer", "links", linkedComponentsAreReachedByTheConsumer},
		{"a peering lives, is repaired, and leaves nothing", "life", lifeOfAPeering},
		{"an identity is renewed in time, and where its account is another one", "identity", identitiesAreRenewed},
		{"latencies are observed", "latency", latenciesAreObserved},
		{"what depends on something goes before it", "order", theOrderOfTheEnd},
		{"somebody else's peering is left alone", "foreign", foreignPeeringsAreLeftAlone},
		{"a cluster that has left is not waited for", "left", clustersThatLeftAreNotWaitedFor},
		{"a cluster that has joined is peered with no other", "joined", joinedClustersArePeeredWithNoOther},
		{"a provider that is taken out while it does not answer is not waited for", "forsaken", forsakenProvidersAreNotWaitedFor},
		{"both directions share one network, and either may end", "both", bothDirectionsShareTheNetwork},
		{"two instances share a peering, and the last one ends it", "share", instancesShareAPeering},
		{"instances that go at the same time leave no peering", "same", instancesThatGoTogether},
		{"a restored hub ends no peering by itself", "held", heldPeeringsStay},
		{"an instance leaves one of its clusters", "leave", aClusterOfSeveralIsLeft},
		{"a namespace extends as the plan says", "extends", namespacesExtendAsThePlanSays},
		{"a workload is reached where it says", "workload", workloadsAreReachedWhereTheySay},
		{"linked components reach each other", "link", linkedComponentsReachEachOther},
		{"sluice may do no more than it needs", "rights", sluiceMayDoNoMore},
		{"a consumer's identity may only ask", "peer", peersMayOnlyAsk},
		{"nobody escapes over a virtual node", "escape", nobodyEscapesOverANode},
		{"pods over a virtual node as they were agreed only", "agreed", agreedPodsOverANode},
		{"slices of other classes are refused to everyone", "class", otherClassesAreRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(f.pair(t, test.pair))
		})
	}
}

func lifeOfAPeering(p *pair) {
	p.controllers.paused.Store(true)
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true))
	p.pass(p.Context(), peering)
	if c := ready(peering); c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonInProgress ||
		!strings.Contains(c.Message, "Configuration") || !strings.Contains(c.Message, p.consumer.name) && !strings.Contains(c.Message, p.provider.name) {
		p.Errorf("without Liqo's controllers it says %s %q, want it to wait and to name object and cluster", c.Reason, c.Message)
	}
	if c := meta.FindStatusCondition(peering.Status.Conditions, v1alpha1.ConditionAuthenticated); c == nil || c.Status != metav1.ConditionTrue {
		p.Errorf("the identity waits for the network: %+v", c)
	}
	p.controllers.paused.Store(false)
	p.untilReady(peering)
	if peering.Status.Consumer.ClusterID != p.consumer.id || peering.Status.Provider.ExternalCIDR != "10.70.0.0/16" || peering.Status.IdentityExpiresAt == nil {
		p.Errorf("status is %+v", peering.Status)
	}

	onProvider, onConsumer := p.provider.tenant(p.consumer), p.consumer.tenant(p.provider)
	var tenant authv1beta1.Tenant
	if !p.provider.has(p.T, onProvider, p.consumer.id, &tenant) || *tenant.Spec.AuthzPolicy != authv1beta1.TolerateNoHandshake {
		p.Errorf("tenant is %+v", tenant.Spec)
	}
	var configuration networkingv1beta1.Configuration
	if p.consumer.has(p.T, onConsumer, p.provider.id, &configuration); configuration.Spec.Remote.CIDR.Pod[0] != "10.128.0.0/16" {
		p.Errorf("configuration is %+v", configuration.Spec)
	}
	var caller networkingv1beta1.GatewayClient
	if p.consumer.has(p.T, onConsumer, p.provider.id, &caller); caller.Spec.Endpoint.Port != 32000 || caller.Spec.ClientTemplateRef.Namespace != p.consumer.liqo {
		p.Errorf("the consumer's gateway is %+v", caller.Spec)
	}

	for _, gone := range []struct {
		from      *end
		namespace string
		object    client.Object
	}{
		{p.consumer, onConsumer, &networkingv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Name: p.provider.id}}},
		{p.provider, onProvider, &networkingv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Name: p.consumer.id}}},
		{p.consumer, onConsumer, &networkingv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Name: p.provider.id}}},
		{p.provider, onProvider, &networkingv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Name: p.consumer.id}}},
		{p.consumer, onConsumer, &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: p.provider.id}}},
		{p.provider, onProvider, &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: p.consumer.id}}},
		{p.provider, onProvider, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: liqo.PeerRole}}},
		{p.consumer, onConsumer, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: p.consumer.identityName(p.provider)}}},
		{p.consumer, onConsumer, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "sluice"}}},
	} {
		gone.object.SetNamespace(gone.namespace)
		must(p.T, gone.from.admin.Delete(p.Context(), gone.object))
		p.untilReady(peering)
		if !gone.from.has(p.T, gone.namespace, gone.object.GetName(), gone.object) {
			p.Errorf("%T does not come back on %s", gone.object, gone.from.name)
		}
	}
	changed := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"publicKey":"c3RvbGVu"}}`))
	key := &networkingv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Namespace: onConsumer, Name: p.provider.id}}
	must(p.T, p.consumer.admin.Patch(p.Context(), key, changed))
	p.untilReady(peering)
	if p.consumer.has(p.T, onConsumer, p.provider.id, key); string(key.Spec.PublicKey) != "key of "+p.provider.id {
		p.Errorf("the key that was changed is %q", key.Spec.PublicKey)
	}

	before := peering.ResourceVersion
	p.pass(p.Context(), peering)
	if peering.ResourceVersion != before {
		p.Error("a pass that changes nothing has written the status")
	}
	must(p.T, p.hub.Delete(p.Context(), peering))
	p.untilGone(peering)
	p.wantNothingLeft()

	events, err := journal.Read(p.Context(), p.hub, p.namespace, func(e journal.Entry) bool { return e.UID == peering.UID })
	must(p.T, err)
	if n := len(events); n < 2 || events[0].Type != v1alpha1.EventReady || events[n-1].Type != v1alpha1.EventRemoved || len(events[0].Clusters) != 2 {
		p.Errorf("the events are %+v, want it to be ready first, and removed in the end", events)
	}
}

// Liqo's latency between the gateways is written to both clusters if it has changed, and at most
// once a minute.
func latenciesAreObserved(p *pair) {
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(false))
	p.untilReady(peering)
	start := p.clock.Now().Truncate(time.Second)
	say := func(on, other *end, value string, at time.Time) {
		p.Helper()
		connection := &networkingv1beta1.Connection{}
		must(p.T, on.admin.Get(p.Context(), client.ObjectKey{Namespace: on.tenant(other), Name: "gw-" + other.id}, connection))
		connection.Status.Latency = networkingv1beta1.ConnectionLatency{Value: value, Timestamp: metav1.NewTime(at)}
		must(p.T, on.admin.Status().Update(p.Context(), connection))
	}
	observed := func(on *end) *v1alpha1.MemberCluster {
		p.Helper()
		cluster := &v1alpha1.MemberCluster{}
		must(p.T, p.hub.Get(p.Context(), client.ObjectKey{Namespace: p.namespace, Name: on.name}, cluster))
		return cluster
	}
	want := func(what string, on, other *end, median time.Duration, at time.Time) {
		p.Helper()
		got := observed(on).Status.Latencies
		if len(got) != 1 || got[0].From != other.name || got[0].Median.Duration != median || !got[0].MeasuredAt.Time.Equal(at) {
			p.Errorf("%s: %s has %+v, want %s from %s at %s", what, on.name, got, median, other.name, at)
		}
	}
	say(p.consumer, p.provider, "N/A", start)
	p.pass(p.Context(), peering)
	if got := observed(p.consumer).Status.Latencies; len(got) != 0 {
		p.Errorf("Liqo says nothing, and there is %+v", got)
	}
	say(p.consumer, p.provider, "12ms", start)
	say(p.provider, p.consumer, "840μs", start)
	p.pass(p.Context(), peering)
	want("at first", p.consumer, p.provider, 12*time.Millisecond, start)
	want("at first", p.provider, p.consumer, 840*time.Microsecond, start)

	for _, step := range []struct {
		what    string
		value   string
		after   time.Duration // start
		written bool
	}{
		{"much slower, ten seconds later", "40ms", 10 * time.Second, false},
		{"a millisecond slower", "13ms", 2 * time.Minute, false},
		{"two milliseconds slower", "14ms", 3 * time.Minute, true},
		{"faster again, ten seconds later", "12ms", 3*time.Minute + 10*time.Second, false},
		{"a tenth slower", "15ms", 5 * time.Minute, false},
		{"the same as half an hour ago", "14ms", 33 * time.Minute, true},
		{"slower, but two hours ago", "40ms", 33*time.Minute - 2*time.Hour, false},
	} {
		before := observed(p.consumer)
		at := start.Add(step.after)
		p.clock.SetTime(start.Add(max(step.after, 34*time.Minute)))
		say(p.consumer, p.provider, step.value, at)
		p.pass(p.Context(), peering)
		if !step.written {
			if got := observed(p.consumer); got.ResourceVersion != before.ResourceVersion {
				p.Errorf("%s: it was written: %+v", step.what, got.Status.Latencies)
			}
			continue
		}
		took, err := time.ParseDuration(step.value)
		must(p.T, err)
		want(step.what, p.consumer, p.provider, took, at)
	}
	if measured := placement.ClusterOf(observed(p.consumer), p.clock.Now()).Latencies[p.provider.name]; measured.Median != 14*time.Millisecond {
		p.Errorf("placement has %+v", measured)
	}
}

func theOrderOfTheEnd(p *pair) {
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true))
	p.untilReady(peering)
	onProvider, onConsumer := p.provider.tenant(p.consumer), p.consumer.tenant(p.provider)
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: onConsumer, Name: "theirs"}}
	secret := p.identity()
	tenant := &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: onProvider, Name: p.consumer.id}}
	configuration := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: onProvider, Name: p.consumer.id}}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: onConsumer, Name: "held"}}
	must(p.T, p.consumer.admin.Create(p.Context(), slice))
	must(p.T, p.consumer.admin.Create(p.Context(), held))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: onProvider}}
	order := []struct {
		on *end
		client.Object
	}{{p.consumer, slice}, {p.consumer, secret}, {p.provider, tenant}, {p.provider, configuration}}
	hold := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":["example.com/hold"]}}`))
	release := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	for _, o := range order {
		must(p.T, o.on.admin.Patch(p.Context(), o.Object, hold))
	}
	must(p.T, p.hub.Delete(p.Context(), peering))
	for i, o := range order {
		p.eventually("it waits for "+o.GetName(), func(ctx context.Context) (bool, error) {
			return p.pass(ctx, peering) && strings.Contains(ready(peering).Message, "example.com/hold") &&
				strings.Contains(ready(peering).Message, o.GetNamespace()+"/"+o.GetName()), nil
		}, func() string { return ready(peering).Message })
		for _, later := range order[i+1:] {
			must(p.T, later.on.admin.Get(p.Context(), client.ObjectKeyFromObject(later.Object), later.Object))
			if !later.GetDeletionTimestamp().IsZero() {
				p.Errorf("%T goes before %T", later.Object, o.Object)
			}
		}
		if p.provider.has(p.T, "", onProvider, namespace); !namespace.DeletionTimestamp.IsZero() {
			p.Errorf("the namespace goes before %T", o.Object)
		}
		must(p.T, o.on.admin.Patch(p.Context(), o.Object, release))
	}
	p.untilGone(peering)
	p.wantNothingLeft()
}

func foreignPeeringsAreLeftAlone(p *pair) {
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.provider.tenant(p.consumer), Labels: map[string]string{consts.RemoteClusterID: p.consumer.id}}}
	known := &liqov1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: p.consumer.id}, Spec: liqov1beta1.ForeignClusterSpec{ClusterID: liqov1beta1.ClusterID(p.consumer.id)}}
	must(p.T, p.provider.admin.Create(p.Context(), theirs))
	must(p.T, p.provider.admin.Create(p.Context(), known))
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true))
	p.pass(p.Context(), peering)
	c := ready(peering)
	for _, text := range []string{theirs.Name, p.provider.name, "peered without Sluice", "liqoctl unpeer"} {
		if c.Reason != "Refused" || !strings.Contains(c.Message, text) {
			p.Errorf("it says %s %q, want it refused with %q", c.Reason, c.Message, text)
		}
	}
	must(p.T, p.hub.Delete(p.Context(), peering))
	p.untilGone(peering)
	var now corev1.Namespace
	if !p.provider.has(p.T, "", theirs.Name, &now) || !now.DeletionTimestamp.IsZero() || now.UID != theirs.UID || now.Labels[v1alpha1.LabelHub] != "" {
		p.Errorf("the namespace was touched: %+v", now.ObjectMeta)
	}
	if !p.provider.has(p.T, "", known.Name, known) {
		p.Error("what their Liqo knows of the other cluster was deleted")
	}
	if p.consumer.has(p.T, "", p.consumer.tenant(p.provider), &now) {
		p.Error("the namespace that Sluice made is left")
	}
}

func clustersThatLeftAreNotWaitedFor(p *pair) {
	peering := p.peer(p.consumer, p.provider, v1alpha1.ModulesFor(true))
	p.untilReady(peering)
	must(p.T, p.hub.Delete(p.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.provider.name}}))
	p.pass(p.Context(), peering)
	if c := ready(peering); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, p.provider.name) {
		p.Errorf("without its provider it says %q", c.Message)
	}
	must(p.T, p.hub.Delete(p.Context(), peering))
	p.untilGone(peering)
	if p.consumer.has(p.T, "", p.consumer.tenant(p.provider), &corev1.Namespace{}) || p.consumer.has(p.T, "", p.provider.id, &liqov1beta1.ForeignCluster{}) {
		p.Error("something is left on the cluster that stays")
	}
	if !p.provider.has(p.T, "", p.provider.tenant(p.consumer), &corev1.Namespace{}) {
		p.Error("the cluster that left was touched")
	}
}

// servers returns the ends with a gateway server.
func (p *pair) servers() (all []string) {
	p.Helper()
	for _, side := range [][2]*end{{p.consumer, p.provider}, {p.provider, p.consumer}} {
		if side[0].has(p.T, side[0].tenant(side[1]), side[1].id, &networkingv1beta1.GatewayServer{}) {
			all = append(all, side[0].name)
		}
		if side[0].has(p.T, side[0].tenant(side[1]), side[1].id, &networkingv1beta1.GatewayClient{}) {
			all = append(all, "called by "+side[0].name)
		}
	}
	slices.Sort(all)
	return all
}

// Both are created within one second, the resolution of creation times.
func bothDirectionsShareTheNetwork(p *pair) {
	one, other := p.consumer, p.provider
	if v1alpha1.PeeringName(one.name, other.name) > v1alpha1.PeeringName(other.name, one.name) {
		one, other = other, one // so that the first, which says whose gateway is called, is the one that ends
	}
	there := p.peer(one, other, v1alpha1.ModulesFor(true))
	back := p.peer(other, one, v1alpha1.ModulesFor(true))
	p.untilReady(there)
	p.untilReady(back)
	p.untilReady(there)
	servers := p.servers()
	if len(servers) != 2 {
		p.Fatalf("gateways are %q, want one that is called and one that calls", servers)
	}

	// The objects of the other peering, which stays.
	replica := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: one.tenant(other), Name: "both-sold"}}
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: other.tenant(one), Name: replica.Name, Labels: map[string]string{consts.ReplicationRequestedLabel: "true"},
	}, Spec: authv1beta1.ResourceSliceSpec{Class: "sluice"}}
	must(p.T, other.admin.Create(p.Context(), slice))
	p.eventually("the slice is replicated", func(context.Context) (bool, error) {
		return one.has(p.T, replica.Namespace, replica.Name, replica), nil
	}, func() string { return "" })
	before := replica.UID

	must(p.T, p.hub.Delete(p.Context(), there))
	p.untilGone(there)
	p.untilReady(back)
	if now := p.servers(); !slices.Equal(now, servers) {
		p.Errorf("gateways were %q and are %q", servers, now)
	}
	if !one.has(p.T, replica.Namespace, replica.Name, replica) || replica.UID != before || !replica.DeletionTimestamp.IsZero() {
		p.Error("the slice of the peering that stays was deleted with the other")
	}
	if other.has(p.T, other.tenant(one), one.id, &authv1beta1.Tenant{}) {
		p.Error("the consumer of the peering that has ended may still ask")
	}
	must(p.T, p.hub.Delete(p.Context(), back))
	p.untilGone(back)
	p.wantNothingLeft()
}
