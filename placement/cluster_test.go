package placement

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A member cluster has the taints of its operator, and one more while it does not answer.
func TestClusterOfHasTaints(t *testing.T) {
	mc := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Taints: []corev1.Taint{{Key: "own", Effect: corev1.TaintEffectNoSchedule}}}}
	for status, want := range map[metav1.ConditionStatus][]string{
		metav1.ConditionTrue:    {"own"},
		metav1.ConditionUnknown: {"own"},
		metav1.ConditionFalse:   {"own", v1alpha1.TaintUnreachable},
	} {
		mc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: status}}
		got := ClusterOf(mc, time.Time{}).Taints
		same := len(got) == len(want)
		for i := range min(len(got), len(want)) {
			same = same && got[i].Key == want[i]
		}
		if !same {
			t.Errorf("reachable %s: taints %v, want %v", status, got, want)
		}
	}
}

// A cluster that sells more processors than it has sells its public ports, too, each once.
func TestClusterOfSellsPublicPorts(t *testing.T) {
	twice := resource.MustParse("2")
	mc := &v1alpha1.MemberCluster{
		Spec: v1alpha1.MemberClusterSpec{
			Oversubscription: map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: twice, v1alpha1.ResourcePublicPorts: twice},
			Exposure:         &v1alpha1.ClusterExposure{TCP: &v1alpha1.ExposureTCP{First: 9000, Last: 9009}},
		},
		Status: v1alpha1.MemberClusterStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}},
	}
	c := ClusterOf(mc, time.Time{})
	if cpu, ports := c.sold(corev1.ResourceCPU), c.sold(v1alpha1.ResourcePublicPorts); cpu != 16000 || ports != 10 {
		t.Errorf("sells %d thousandths of a processor and %d public ports, want 16000 and 10", cpu, ports)
	}
}

// A price that is not valid, or too large to be counted, makes nothing free.
func TestClusterOfHasPrices(t *testing.T) {
	mc := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Prices: &v1alpha1.PriceList{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{
		"cpu": resource.MustParse("0.02"), "memory": resource.MustParse("10G"), "pods": resource.MustParse("-0.02"), "free": resource.MustParse("0"),
	}}}}
	want := map[corev1.ResourceName]int64{"cpu": 20_000_000, "memory": 12_634_756_000_000_000, "pods": 12_634_756_000_000_000, "free": 0}
	if got := ClusterOf(mc, time.Time{}).Prices; !maps.Equal(got, want) {
		t.Errorf("prices %v, want %v", got, want)
	}
}

func TestForSale(t *testing.T) {
	for name, row := range map[string]struct {
		sell *v1alpha1.Sale
		sold string
		held bool
	}{
		"everything":               {nil, "8050m", false},
		"everything, it says":      {&v1alpha1.Sale{Share: 100}, "8050m", false},
		"a third, rounded down":    {&v1alpha1.Sale{Share: 33}, "2656m", true},
		"at most so much":          {&v1alpha1.Sale{AtMost: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}, "2", true},
		"the lesser of the two":    {&v1alpha1.Sale{Share: 10, AtMost: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}, "805m", true},
		"nothing, as it is hidden": {&v1alpha1.Sale{Share: 50, Hide: []corev1.ResourceName{corev1.ResourceCPU}}, "0", false},
		"another is hidden":        {&v1alpha1.Sale{Hide: []corev1.ResourceName{corev1.ResourceMemory}}, "8050m", false},
		"at most more than it has": {&v1alpha1.Sale{AtMost: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("9")}}, "8050m", false},
	} {
		mc := &v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Sell: row.sell}}
		mc.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8050m")}
		if sold, held := ForSale(mc, corev1.ResourceCPU); sold.String() != row.sold || held != row.held {
			t.Errorf("%s: %s for sale, some held back: %t", name, sold.String(), held)
		}
	}
}

// A reference to consumers selects a platform, an organization or a space.
func TestIsOf(t *testing.T) {
	consumer := Consumer{Platform: "cf", Organization: "org", Space: "dev"}
	for _, row := range []struct {
		ref  v1alpha1.ConsumerReference
		want bool
	}{
		{v1alpha1.ConsumerReference{Platform: "cf"}, true},
		{v1alpha1.ConsumerReference{Platform: "k8s"}, false},
		{v1alpha1.ConsumerReference{Platform: "cf", Organization: "org"}, true},
		{v1alpha1.ConsumerReference{Platform: "cf", Organization: "other"}, false},
		{v1alpha1.ConsumerReference{Platform: "cf", Organization: "org", Space: "dev"}, true},
		{v1alpha1.ConsumerReference{Platform: "cf", Organization: "org", Space: "test"}, false},
	} {
		c := &Cluster{Consumers: []v1alpha1.ConsumerReference{row.ref}}
		if got := c.isOf(consumer); got != row.want {
			t.Errorf("%+v: %t", row.ref, got)
		}
	}
}

// Once half of all clusters answer again, those on the others are woken: during an outage they did not leave.
func TestTheEndOfAnOutageWakesWhoIsOnLostClusters(t *testing.T) {
	cluster := func(name string, ready bool) *Cluster {
		return &Cluster{Name: name, Ready: ready, AccessVerified: true, Allocatable: cores(4)}
	}
	inventory, woken := watched(cluster("a", false), cluster("b", false), cluster("c", false), cluster("d", true))
	inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"a": cores(1)}})
	woken()
	if !inventory.Snapshot().Outage() {
		t.Error("three of four do not answer, and that is no outage")
	}
	if inventory.UpsertCluster(cluster("b", true)); woken()["si"] != 1 || inventory.Snapshot().Outage() {
		t.Error("the outage is over, and it slept on")
	}
	if inventory.UpsertCluster(cluster("c", true)); woken()["si"] != 0 {
		t.Error("it is woken though there was no outage")
	}
}

// A resource that no cluster has, for instance storage of a class that is gone, takes nothing of another.
func TestAnUnknownResourceIsNoOther(t *testing.T) {
	inventory := stock([]*Cluster{{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(4)}})
	inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"eu": {"gone.example/gpu": 3}}})
	if free := inventory.Snapshot().Free("eu", corev1.ResourceCPU); free != 4000 {
		t.Errorf("%d free, want 4000", free)
	}
}

// An answer about a cluster that was true before its labels changed is not kept.
func TestExpressionsReadTheClusterAsItIsNow(t *testing.T) {
	cluster := func(color string) *Cluster {
		return &Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(4), Labels: map[string]string{"color": color}}
	}
	rule, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "red", Expression: `cluster.labels["color"] == "red"`})
	if err != nil {
		t.Fatal(err)
	}
	inventory := stock([]*Cluster{cluster("red"), {Name: "us", Allocatable: cores(1)}})
	for _, row := range []struct {
		color  string
		placed bool
	}{{"red", true}, {"blue", false}, {"red", true}} {
		inventory.UpsertCluster(cluster(row.color))
		_, err := Place(Request{ID: "si", Resources: cores(1), Rules: []Rule{rule}}, inventory.Snapshot())
		if (err == nil) != row.placed {
			t.Errorf("%s: %v", row.color, err)
		}
	}
}

// A request without a peering has none to keep, whatever its instance had before.
func TestNoPeeringStaysNone(t *testing.T) {
	var none *Peering
	none.Stay(&v1alpha1.Decision{Placements: []v1alpha1.Placement{{Peering: &v1alpha1.PlacementPeering{Consumer: "own"}}}})
	if none.Placed("si", "eu") != nil {
		t.Error("there is one")
	}
	p := &Peering{Consumer: "own", Hub: "hub"}
	if p.Stay(nil, &v1alpha1.Decision{}, &v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "eu"}}}); p.Consumer != "own" || p.Hub != "hub" {
		t.Errorf("decisions without a peering change it to %+v", p)
	}
}

// Rules for pods apply to clusters that run pods, and these do not enforce them before they say so.
func TestClusterOfRunsPods(t *testing.T) {
	for driver, guards := range map[string]bool{v1alpha1.DriverKube: false, v1alpha1.DriverLiqo: false, v1alpha1.DriverCAPI: true, v1alpha1.DriverOSB: true} {
		c := ClusterOf(&v1alpha1.MemberCluster{Spec: v1alpha1.MemberClusterSpec{Driver: driver}}, time.Time{})
		if (c.Unguarded == "") != guards {
			t.Errorf("driver %s: %q", driver, c.Unguarded)
		}
	}
}

func TestEachCredentialIsNamedOnceInOrder(t *testing.T) {
	claims := []v1alpha1.Claim{{Credential: "b"}, {Credential: "a"}, {}, {Credential: "b"}}
	if got := CredentialsOf(claims); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
}

func TestAClusterIsForsaken(t *testing.T) {
	for cluster, want := range map[*Cluster]bool{
		{Removed: true}:              true,
		{Removed: true, Ready: true}: false,
		{}:                           false,
		{Ready: true}:                false,
	} {
		if got := cluster.IsForsaken(); got != want {
			t.Errorf("removed %t, ready %t: %t", cluster.Removed, cluster.Ready, got)
		}
	}
}

func TestCredentialsAreListedOnce(t *testing.T) {
	claims := []v1alpha1.Claim{{Name: "a", Credential: "sha384-z"}, {Name: "b"}, {Name: "c", Credential: "sha384-a"}, {Name: "d", Credential: "sha384-z"}}
	if got := CredentialsOf(claims); !slices.Equal(got, []string{"sha384-a", "sha384-z"}) {
		t.Errorf("they are %v", got)
	}
}

func TestNothingIsFreeOnAClusterThatThereIsNot(t *testing.T) {
	inventory := NewInventory()
	inventory.UpsertCluster(&Cluster{Name: "eu", Ready: true, AccessVerified: true, Allocatable: Resources{"cpu": 4000}})
	s := inventory.Snapshot()
	if there, elsewhere := s.Free("eu", "cpu"), s.Free("us", "cpu"); there != 4000 || elsewhere != 0 {
		t.Errorf("free are %d and %d", there, elsewhere)
	}
}

// A fork of an inventory in an outage is in one, too.
func TestAForkKnowsOfAnOutage(t *testing.T) {
	inventory := NewInventory()
	for name, ready := range map[string]bool{"a": true, "b": false, "c": false} {
		inventory.UpsertCluster(&Cluster{Name: name, Ready: ready, AccessVerified: true})
	}
	fork := inventory.Fork()
	if !fork.Snapshot().Outage() {
		t.Error("one of three answers, and that is no outage")
	}
	fork.UpsertCluster(&Cluster{Name: "b", Ready: true, AccessVerified: true})
	if fork.Snapshot().Outage() || !inventory.Snapshot().Outage() {
		t.Error("two of three answer in the fork, and one beside it")
	}
}

// What is reserved on a cluster that does not have it any more is no room once it is given back.
func TestWhatAClusterHasLostIsNotFreeAgain(t *testing.T) {
	inventory := stock([]*Cluster{withCores("b", 8)})
	inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"b": {testGPU: 4}}})
	other := withCores("c", 8)
	other.Allocatable[testGPU] = 8
	inventory.UpsertCluster(other)
	inventory.Release("si")
	if free := inventory.Snapshot().Free("b", testGPU); free != 0 {
		t.Errorf("%d GPUs are free on a cluster that has none", free)
	}
}

// An outage also ends when clusters that do not answer are removed.
func TestARemovalThatEndsAnOutageWakesWhoIsOnLostClusters(t *testing.T) {
	cluster := func(name string, ready bool) *Cluster {
		return &Cluster{Name: name, Ready: ready, AccessVerified: true, Allocatable: cores(4)}
	}
	inventory, woken := watched(cluster("a", false), cluster("b", false), cluster("c", false), cluster("d", true))
	inventory.Reserve(Holding{Instance: "si", Held: map[string]Resources{"a": cores(1)}})
	woken()
	if inventory.DeleteCluster("b"); woken()["si"] != 0 || !inventory.Snapshot().Outage() {
		t.Error("two of three do not answer, and it is woken")
	}
	if inventory.DeleteCluster("c"); woken()["si"] != 1 || inventory.Snapshot().Outage() {
		t.Error("the outage is over, and it slept on")
	}
}
