package liqo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// amounts reads "cpu=4,memory=8Gi".
func amounts(list string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for pair := range strings.SplitSeq(list, ",") {
		if name, amount, ok := strings.Cut(pair, "="); ok {
			out[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
	}
	return out
}

func sliceAsking(resources string) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{Spec: authv1beta1.ResourceSliceSpec{Resources: amounts(resources)}}
}

func TestSold(t *testing.T) {
	provider := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu", Labels: map[string]string{
		"security-policy": "strict", "margin": "high", "kubernetes.io/hostname": "other", "offloading.liqo.io/node": "other",
	}}}
	provider.Spec.Region, provider.Spec.Provider = "eu-de", "acme"
	const accepted = ""
	for _, test := range []struct {
		name, reserved, asks, gives string
		denied                      string // with a message that has this; accepted if empty
	}{
		{"exactly what is reserved", "cpu=2,memory=4Gi,pods=10", "cpu=2,memory=4Gi,pods=10", "cpu=2,memory=4Gi,pods=10", accepted},
		{"the same in other words", "cpu=2", "cpu=2000m", "cpu=2,pods=110", accepted},
		{"less gets what is reserved", "cpu=2", "cpu=1", "cpu=2,pods=110", accepted},
		{"nothing said gets what is reserved", "cpu=2", "", "cpu=2,pods=110", accepted},
		{"a bit more", "cpu=2", "cpu=2001m", "", "asks for 2001m cpu, and 2 are reserved"},
		{"a resource that is not reserved", "cpu=2", "cpu=2,nvidia.com/gpu=1", "", "asks for 1 nvidia.com/gpu, and 0 are reserved"},
		{"none of a resource that is not reserved", "cpu=2", "nvidia.com/gpu=0", "cpu=2,pods=110", accepted},
		{"as many pods as a node takes by default", "cpu=2", "pods=110", "cpu=2,pods=110", accepted},
		{"more pods than that", "cpu=2", "pods=111", "", "asks for 111 pods, and 110 are reserved"},
		{"more pods than are reserved", "cpu=2,pods=5", "pods=6", "", "asks for 6 pods, and 5 are reserved"},
		{"storage is no resource of nodes", "cpu=2,fast.storageclass.storage.k8s.io/requests.storage=10Gi", "cpu=2", "cpu=2,pods=110", accepted},
		{"storage that is asked for", "cpu=2,fast.storageclass.storage.k8s.io/requests.storage=10Gi", "fast.storageclass.storage.k8s.io/requests.storage=1Gi", "", "and 0 are reserved"},
	} {
		t.Run(test.name, func(t *testing.T) {
			instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-1"}}
			v := sold(sliceAsking(test.asks), &v1alpha1.Placement{Reserved: amounts(test.reserved)}, instance, provider, []string{"security-policy", "own", "kubernetes.io/hostname", "offloading.liqo.io/node", v1alpha1.LabelZone})
			if test.denied != "" {
				if v.status != authv1beta1.ResourceSliceConditionDenied || v.reason != reasonNotReserved || !strings.Contains(v.message, test.denied) || v.resources != nil {
					t.Errorf("verdict is %+v, want it denied with %q", v, test.denied)
				}
				return
			}
			if v.status != authv1beta1.ResourceSliceConditionAccepted || v.reason != reasonReserved || !equality.Semantic.DeepEqual(v.resources, amounts(test.gives)) {
				t.Errorf("verdict is %+v, want %s accepted", v, test.gives)
			}
			want := map[string]string{
				v1alpha1.LabelInstance: "si-1", v1alpha1.LabelCluster: "eu", v1alpha1.LabelRegion: "eu-de",
				v1alpha1.LabelProvider: "acme", v1alpha1.LabelTier: "cloud", "security-policy": "strict", v1alpha1.LabelPeer: v1alpha1.PeerMark(provider),
			}
			if !maps.Equal(v.labels, want) {
				t.Errorf("node labels are %v, want %v", v.labels, want)
			}
		})
	}
}

// The node of an instance that a pool has ordered shows the pool, and nothing of the provider.
func TestANodeOfAPoolShowsThePool(t *testing.T) {
	provider := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "small-1", UID: "secret", Labels: map[string]string{"security-policy": "strict"}}}
	provider.Spec.Provider, provider.Spec.Region, provider.Spec.Zone, provider.Spec.Tier = "acme", "eu-de", "a", "edge"
	instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-1"}, Spec: v1alpha1.ServiceInstanceSpec{Pool: &v1alpha1.PoolOrder{Pool: "eu-pool"}}}
	v := sold(sliceAsking("cpu=1"), &v1alpha1.Placement{Reserved: amounts("cpu=1")}, instance, provider, []string{"security-policy"})
	want := map[string]string{v1alpha1.LabelInstance: "si-1", v1alpha1.LabelCluster: "eu-pool", v1alpha1.LabelPeer: v1alpha1.PeerMark(provider)}
	if !maps.Equal(v.labels, want) {
		t.Errorf("node labels are %v, want %v", v.labels, want)
	}
}

// peered is a placement on eu that is delivered to a consumer's cluster, by a node or a hub.
func peered(consumer, hub, node, reserved string) v1alpha1.Placement {
	return v1alpha1.Placement{
		Cluster: "eu", Reserved: amounts(reserved),
		Peering: &v1alpha1.PlacementPeering{Consumer: consumer, Hub: hub, Node: node},
	}
}

func decided(placements ...v1alpha1.Placement) *v1alpha1.Decision {
	return &v1alpha1.Decision{Placements: placements}
}

func delivered(placements ...v1alpha1.Placement) *v1alpha1.DeliveredState {
	return &v1alpha1.DeliveredState{Decision: *decided(placements...)}
}

func TestJudge(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	own := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}}
	own.Spec.Consumers = []v1alpha1.ConsumerReference{{Platform: "cf", Organization: "acme"}}
	eu := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "eu"}}
	eu.Spec.Provider = "acme"
	refusing := []v1alpha1.PlacementPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "no-cf"},
		Spec:       v1alpha1.PlacementPolicySpec{Provider: "acme", Require: []v1alpha1.PolicyRule{{Name: "k8s-only", Expression: "consumer.platform == 'k8s'"}}},
	}}
	two, four := peered("own", "", "node-1", "cpu=2"), peered("own", "", "node-1", "cpu=4")

	for _, test := range []struct {
		name     string
		status   v1alpha1.ServiceInstanceStatus
		slice    string // its name; node-1 is the instance's
		label    string // the instance that it says to be of
		asks     string
		policies []v1alpha1.PlacementPolicy
		reason   string
	}{
		{"what is delivered", v1alpha1.ServiceInstanceStatus{Delivered: delivered(two)}, "node-1", "si-1", "cpu=2", nil, reasonReserved},
		{"what is decided", v1alpha1.ServiceInstanceStatus{Decision: decided(two)}, "node-1", "si-1", "cpu=2", nil, reasonReserved},
		{"the old size while it grows", v1alpha1.ServiceInstanceStatus{Decision: decided(four), Delivered: delivered(two)}, "node-1", "si-1", "cpu=2", nil, reasonReserved},
		{"the new size while it grows", v1alpha1.ServiceInstanceStatus{Decision: decided(four), Delivered: delivered(two)}, "node-1", "si-1", "cpu=4", nil, reasonReserved},
		{"the old size while it shrinks", v1alpha1.ServiceInstanceStatus{Decision: decided(two), Delivered: delivered(four)}, "node-1", "si-1", "cpu=4", nil, reasonReserved},
		{"the old size once it has shrunk", v1alpha1.ServiceInstanceStatus{Delivered: delivered(two)}, "node-1", "si-1", "cpu=4", nil, reasonNotReserved},
		{"what it is leaving", v1alpha1.ServiceInstanceStatus{Left: []v1alpha1.LeftPlacement{{Placement: two}}}, "node-1", "si-1", "cpu=2", nil, reasonReserved},
		{"another node of the instance", v1alpha1.ServiceInstanceStatus{Delivered: delivered(two)}, "node-2", "si-1", "cpu=1", nil, reasonNotReserved},
		{"an instance of another consumer's cluster", v1alpha1.ServiceInstanceStatus{Delivered: delivered(peered("other", "", "node-1", "cpu=2"))}, "node-1", "si-1", "cpu=1", nil, reasonNotReserved},
		{"an instance behind a hub, asked for by the consumer itself", v1alpha1.ServiceInstanceStatus{Delivered: delivered(peered("own", "hub", "node-1", "cpu=2"))}, "node-1", "si-1", "cpu=1", nil, reasonNotReserved},
		{"an instance without a peering", v1alpha1.ServiceInstanceStatus{Delivered: delivered(v1alpha1.Placement{Cluster: "eu"})}, "node-1", "si-1", "cpu=1", nil, reasonNotReserved},
		{"a stranger", v1alpha1.ServiceInstanceStatus{}, "mine", "", "cpu=1", nil, reasonNotReserved},
		{"an instance that there is not", v1alpha1.ServiceInstanceStatus{}, "node-1", "si-none", "cpu=1", nil, reasonNotReserved},
		{"a stranger whom the provider refuses", v1alpha1.ServiceInstanceStatus{}, "mine", "", "cpu=1", refusing, reasonConsumerRefused},
		{"what was bought before the provider refused", v1alpha1.ServiceInstanceStatus{Delivered: delivered(two)}, "node-1", "si-1", "cpu=2", refusing, reasonReserved},
		{"more of that", v1alpha1.ServiceInstanceStatus{Delivered: delivered(two)}, "node-1", "si-1", "cpu=3", refusing, reasonNotReserved},
	} {
		t.Run(test.name, func(t *testing.T) {
			instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "si-1"}, Status: test.status}
			hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(own, eu, instance).Build()
			inventory := placement.NewInventory()
			inventory.UpsertCluster(placement.ClusterOf(eu, metav1.Now().Time))
			inventory.SetPolicies(placement.CompilePolicies(test.policies))
			j := &Judge{Client: hub, Live: hub, Namespace: namespace, Refuses: inventory.Refuses}
			peering := &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Consumer: "own", Provider: "eu"}}
			slice := sliceAsking(test.asks)
			slice.Name = test.slice
			if test.label != "" {
				slice.Labels = map[string]string{v1alpha1.LabelInstance: test.label}
			}
			v, err := j.judge(t.Context(), peering, &side{cluster: eu}, slice)
			if err != nil {
				t.Fatal(err)
			}
			status := authv1beta1.ResourceSliceConditionDenied
			if test.reason == reasonReserved {
				status = authv1beta1.ResourceSliceConditionAccepted
			}
			if v.reason != test.reason || v.status != status {
				t.Errorf("verdict is %s, %s: %s; want %s", v.status, v.reason, v.message, test.reason)
			}
			j.Hold = func(context.Context) error { return errors.New("the hub was restored") }
			if v, err = j.judge(t.Context(), peering, &side{cluster: eu}, slice); err != nil || (v.status == "") != (test.label == "si-none") {
				t.Errorf("verdict is %q while the hub may lack instances: %v", v.status, err)
			}
			if test.reason == reasonConsumerRefused && !strings.Contains(v.message, "no-cf, k8s-only") {
				t.Errorf("the message does not name the policy: %s", v.message)
			}
		})
	}
}

func TestTakesWhatItsPlacementsNeed(t *testing.T) {
	instance := &v1alpha1.ServiceInstance{Status: v1alpha1.ServiceInstanceStatus{
		Decision:  decided(peered("own", "", "node-1", "cpu=2")),
		Delivered: delivered(peered("own", "hub", "node-2", "cpu=2")),
		Left:      []v1alpha1.LeftPlacement{{Placement: v1alpha1.Placement{Cluster: "us", Peering: &v1alpha1.PlacementPeering{Consumer: "own"}}}},
	}}
	for _, test := range []struct {
		consumer, provider string
		want               bool
	}{
		{"own", "eu", true},  // decided
		{"hub", "eu", true},  // delivered, behind the hub
		{"own", "hub", true}, // delivered, to the hub
		{"own", "us", true},  // left, and not gone yet
		{"eu", "own", false}, // the other way round
		{"hub", "us", false},
	} {
		if got := Takes(instance, test.consumer, test.provider); got != test.want {
			t.Errorf("takes the peering of %s with %s: %v, want %v", test.consumer, test.provider, got, test.want)
		}
	}
	if takes(instance, "us", "own", "us") {
		t.Error("it takes the peering without the placement that needed it")
	}
}

func TestLegs(t *testing.T) {
	node, network := v1alpha1.ModulesFor(true), v1alpha1.ModulesFor(false)
	for _, test := range []struct {
		name            string
		hub, nodeCalled string
		want            []leg
	}{
		{"a node", "", "node-1", []leg{{"own", "eu", node}}},
		{"addresses", "", "", []leg{{"own", "eu", network}}},
		{"through a hub", "hub", "node-1", []leg{{"hub", "eu", node}, {"own", "hub", network}}},
	} {
		p := peered("own", test.hub, test.nodeCalled, "")
		if got := legs(&p); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: legs are %v, want %v", test.name, got, test.want)
		}
	}
}

func TestReasonOfAndFirst(t *testing.T) {
	failed, pending, refused := errors.New("failed"), &delivery.PendingError{Step: "s"}, &delivery.RefusedError{Reason: "r"}
	for _, test := range []struct {
		err  error
		want string
	}{
		{failed, v1alpha1.ReasonFailed},
		{fmt.Errorf("wrapped: %w", pending), v1alpha1.ReasonInProgress},
		{fmt.Errorf("wrapped: %w", refused), v1alpha1.ReasonRefused},
	} {
		if got := reasonOf(test.err); got != test.want {
			t.Errorf("reason of %v is %s, want %s", test.err, got, test.want)
		}
	}
	for _, test := range []struct {
		errs []error
		want error
	}{
		{[]error{nil, nil}, nil},
		{[]error{nil, pending}, pending},
		{[]error{pending, failed}, failed}, // a wait hides no failure
		{[]error{pending, refused, failed}, refused},
	} {
		if got := first(test.errs...); !errors.Is(got, test.want) || (got == nil) != (test.want == nil) {
			t.Errorf("first of %v is %v, want %v", test.errs, got, test.want)
		}
	}
}

func TestInvitationOf(t *testing.T) {
	network := func(id string) *v1alpha1.LiqoNetwork { return &v1alpha1.LiqoNetwork{ClusterID: id} }
	for _, test := range []struct {
		role v1alpha1.PeeringSide
		want []string // who is invited, by whom, and what is signed
	}{
		{v1alpha1.SideProvider, []string{"provider", "consumer", "consumer-id", "Provider", ""}},
		{v1alpha1.SideConsumer, []string{"consumer", "provider", "provider-id", "Consumer", "nonce"}},
	} {
		t.Run(string(test.role), func(t *testing.T) {
			peering := &v1alpha1.Peering{Spec: v1alpha1.PeeringSpec{Consumer: "consumer", Provider: "provider"}}
			if _, err := InvitationOf(peering); err == nil {
				t.Error("there is an invitation, and nobody is invited")
			}
			peering.Spec.Invited = &v1alpha1.InvitedCluster{Role: test.role, ClusterID: "their-id"}
			if _, err := InvitationOf(peering); err == nil {
				t.Error("there is an invitation before there is a gateway to call")
			}
			peering.Status = v1alpha1.PeeringStatus{
				HubID: "hub-1", Consumer: network("consumer-id"), Provider: network("provider-id"), Nonce: []byte(test.want[4]),
				Gateway: &v1alpha1.GatewayAddress{Addresses: []string{"192.0.2.1"}, Port: 51840, PublicKey: []byte("key")},
			}
			i, err := InvitationOf(peering)
			if err != nil {
				t.Fatal(err)
			}
			got := []string{i.Cluster, i.With, i.Network.ClusterID, string(i.Role), string(i.Nonce)}
			if !slices.Equal(got, test.want) {
				t.Errorf("invitation is %q, want %q", got, test.want)
			}
			common := []string{i.Kind, i.ClusterID, i.Gateway.Addresses[0], i.Hub}
			if want := []string{KindInvitation, "their-id", "192.0.2.1", "hub-1"}; !slices.Equal(common, want) {
				t.Errorf("invitation is %q, want %q", common, want)
			}
		})
	}
}

func TestAConsumerForTheNetworkOnlyIsNotAskedFor(t *testing.T) {
	for _, rule := range inTenantNamespace(&Invitation{Role: v1alpha1.SideConsumer}) {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list"}, verb) {
				t.Errorf("Sluice may %s %v", verb, rule.Resources)
			}
		}
	}
}
