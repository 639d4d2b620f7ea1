package replay

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

var recordedAt = metav1.NewTime(time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC))

func cores(n int) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

// instance returns an instance that is delivered to a cluster, of a priority class, for one euro an hour and core.
func instance(name, cluster, class string, has int) *v1alpha1.ServiceInstance {
	d := v1alpha1.Decision{Generation: 1, PriorityClass: class, Placements: []v1alpha1.Placement{{
		Cluster: cluster, Reserved: cores(has), Currency: "EUR", PricePerHour: resource.NewQuantity(int64(has), resource.DecimalSI),
	}}}
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ServiceInstanceSpec{Platform: "cf", SpaceGUID: "s"}}
	i.Status.Decision, i.Status.Delivered = &d, &v1alpha1.DeliveredState{Decision: d}
	return i
}

// budget returns a policy by which each platform may spend that many euros an hour.
func budget(perHour int) v1alpha1.PlacementPolicy {
	price := &v1alpha1.Price{Currency: "EUR", PerHour: resource.NewQuantity(int64(perHour), resource.DecimalSI)}
	return v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: v1alpha1.PlacementPolicySpec{Quota: &v1alpha1.Quota{Per: v1alpha1.ScopePlatform, Budget: price}}}
}

// drawRecording draws a hub, and an order of a kind: one that is new, an update or a move of one of its instances, or
// one that displaces others; the decision is not made yet. Most orders can be placed, and each preemption.
func drawRecording(t *rapid.T, kind string) (r *Recording) {
	r = &Recording{Version: recordingVersion, At: recordedAt}
	const full = 20 // cores of the only cluster on which a preemption has room
	var names []string
	for i := range rapid.IntRange(2, 5).Draw(t, "clusters") {
		names = append(names, fmt.Sprintf("c%d", i))
		row := placementtest.Cluster{
			Name: names[i], Region: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "region"), Has: cores(rapid.IntRange(1, full-1).Draw(t, "cores")),
			Cordoned: rapid.IntRange(0, 6).Draw(t, "cordoned") == 0, Currency: "EUR", Prices: cores(rapid.IntRange(1, 3).Draw(t, "price")),
		}
		if kind == "preemption" && i == 0 {
			row.Has, row.Cordoned = cores(full), false
		}
		r.Clusters = append(r.Clusters, plainCluster(row.MemberCluster()))
	}
	var instances []*v1alpha1.ServiceInstance
	for i := range rapid.IntRange(1, 5).Draw(t, "instances") {
		on, classes := rapid.SampledFrom(names).Draw(t, "on"), []string{"bronze", "silver", ""}
		if kind == "preemption" && i == 0 {
			on = names[0]
		}
		if kind == "preemption" && on == names[0] {
			classes = classes[:2] // one without a class is never displaced
		}
		class := rapid.SampledFrom(classes).Draw(t, "class")
		instances = append(instances, instance(fmt.Sprintf("si-%d", i), on, class, rapid.IntRange(1, 4).Draw(t, "has")))
	}
	for _, one := range instances {
		if plain, holds := plainInstance(one); holds {
			r.Instances = append(r.Instances, plain)
		}
	}
	r.Policies = []v1alpha1.PlacementPolicy{*placementtest.PriorityClasses("", v1alpha1.PreemptsSameConsumer)}
	if kind != "preemption" {
		r.Policies = append(r.Policies, budget(rapid.IntRange(1, 60).Draw(t, "budget")))
	}
	sold := &v1alpha1.ResourcesPlan{
		Limits: cores(rapid.IntRange(1, 6).Draw(t, "limit")), PriorityClass: rapid.SampledFrom([]string{"", "gold"}).Draw(t, "of class"),
		Clusters: int32(rapid.IntRange(1, 2).Draw(t, "asked")), Score: v1alpha1.ScoreWeights{Price: 1},
	}
	r.Offering = v1alpha1.ServiceOfferingSpec{ID: "service", Name: "service", Plans: []v1alpha1.Plan{{ID: "plan", Name: "plan", Kind: v1alpha1.PlanKindResources, Resources: sold}}}
	r.Order = Order{ID: "si-new", PlanID: "plan", Consumer: placement.Consumer{Platform: "cf", Space: "s"}}
	switch one := rapid.SampledFrom(instances).Draw(t, "of"); kind {
	case "update":
		r.Order.ID = one.Name
		r.Order.of(one)
	case "move":
		r.Order.ID, r.Order.Leaving = one.Name, one.Status.Decision.Clusters()
		r.Order.of(one)
	case "preemption":
		sold.PriorityClass, sold.Clusters, sold.Limits = "gold", 1, cores(full)
	}
	return r
}

// What was decided is decided again from the file, whatever the order of what is in it: new orders, updates, moves and
// preemptions.
func TestEveryKindOfDecisionIsReplayed(t *testing.T) {
	for _, kind := range []string{"new", "update", "move", "preemption"} {
		t.Run(kind, func(t *testing.T) {
			placed := 0
			rapid.Check(t, func(t *rapid.T) {
				if isReplayed(t, kind) {
					placed++
				}
			})
			if placed == 0 {
				t.Errorf("no %s could be placed", kind)
			}
		})
	}
}

// isReplayed checks that a drawn order of a kind is decided again as it was, and reports whether it was placed.
func isReplayed(t *rapid.T, kind string) (placed bool) {
	r := drawRecording(t, kind)
	d, _, err := r.decide()
	if unplaceable, ok := placement.AsUnplaceable(err); ok {
		r.Error, err = unplaceable.Error(), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Decision = *d.API(1)
	if kind == "preemption" && d.Preemption == nil {
		t.Fatalf("nothing is displaced: %+v, %s", d, r.Error)
	}
	for _, p := range d.Placements {
		if kind == "update" && len(d.Placements) == 1 && p.Cluster != r.Order.Current[0] || kind == "move" && p.Cluster == r.Order.Leaving[0] {
			t.Fatalf("an %s from %v leaves it on %s", kind, append(r.Order.Current, r.Order.Leaving...), p.Cluster)
		}
	}
	data, err := yaml.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadRecording(data)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", read.Order) != fmt.Sprintf("%+v", r.Order) {
		t.Fatalf("the order is read as %+v, and was %+v", read.Order, r.Order)
	}
	read.Clusters = rapid.Permutation(read.Clusters).Draw(t, "clusters in another order")
	read.Instances = rapid.Permutation(read.Instances).Draw(t, "instances in another order")
	if _, err := read.Replay(); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	return r.Error == "" || d.Preemption != nil
}

// TestARecordedBrokerIsBelieved: what a broker says of a candidate is in the recording, and decides as it did: a plan
// of ours is bindable, and one that only a broker without bindings sells is not.
func TestARecordedBrokerIsBelieved(t *testing.T) {
	broker := placementtest.Cluster{Name: "broker", Has: corev1.ResourceList{v1alpha1.ResourceInstances: resource.MustParse("5")}}.MemberCluster()
	broker.Spec.Driver = v1alpha1.DriverOSB
	broker.Status.Broker = &v1alpha1.UpstreamBrokerStatus{Plans: []v1alpha1.OfferedPlan{{Service: "mysql", Plan: "small", ServiceID: "s", PlanID: "p", NotBindable: true}}}
	r := &Recording{
		Version: recordingVersion, At: recordedAt, Clusters: []v1alpha1.MemberCluster{plainCluster(broker)},
		Offering: v1alpha1.ServiceOfferingSpec{ID: "service", Name: "service", Bindable: true, Plans: []v1alpha1.Plan{{
			ID: "plan", Name: "plan", Kind: v1alpha1.PlanKindUpstream,
			Upstream: &v1alpha1.UpstreamPlan{Candidates: []v1alpha1.UpstreamCandidate{{Broker: "broker", Service: "mysql", Plan: "small"}}},
		}}},
		Order: Order{ID: "si-new", PlanID: "plan", Consumer: placement.Consumer{Platform: "cf", Space: "s"}},
	}
	d, _, err := r.decide()
	if err != nil || !slices.Equal(d.API(1).Clusters(), []string{"broker"}) {
		t.Fatalf("it is placed on %v: %v", d.API(1).Clusters(), err)
	}
}

// TestARecordedMoveKeepsItsRules: an instance that leaves one cluster stays on another whose rules for workloads refuse its
// pods by now. A recording of an earlier version has no rules that were sold, and is decided as it was then.
func TestARecordedMoveKeepsItsRules(t *testing.T) {
	f, one := computing(8, 8, 8), ofPlan(instance("si-1", "c0", "", 2), 2)
	refusedByNow(f, one)
	plain, _ := plainInstance(one)
	r := &Recording{
		Version: recordingVersion, At: recordedAt, Offering: f.Offerings[0], Clusters: f.Clusters, Policies: f.Policies, Instances: []v1alpha1.ServiceInstance{plain},
		Order: Order{ID: "si-1", PlanID: "2", Leaving: []string{"c0"}},
	}
	r.Order.of(one)
	d, _, err := r.decide()
	if err != nil || !slices.Equal(d.API(1).Clusters(), []string{"c1", "c2"}) {
		t.Fatalf("it would be on %v: %v", d.API(1).Clusters(), err)
	}
	r.Decision = *d.API(1)
	data, err := yaml.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReadRecording(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read.Replay(); err != nil {
		t.Error(err)
	}
	read.Order.Sold = nil
	if d, _, err = read.decide(); err == nil || !strings.Contains(err.Error(), "PodsRefused") {
		t.Fatalf("of an earlier version: it would be on %v: %v", d.API(1).Clusters(), err)
	}
	read.Decision, read.Error = *d.API(1), err.Error()
	if _, err := read.Replay(); err != nil {
		t.Errorf("of an earlier version: %v", err)
	}
}

// A recording of an earlier version names the fields of the consumer with capital letters.
func TestAnEarlierRecordingIsRead(t *testing.T) {
	for _, consumer := range []string{"{Platform: cf, Space: s}", "{platform: cf, space: s}"} {
		r, err := ReadRecording([]byte("version: 1\norder: {id: a, consumer: " + consumer + "}\n"))
		if err != nil || r.Order.Consumer != (placement.Consumer{Platform: "cf", Space: "s"}) {
			t.Errorf("%s: %+v, %v", consumer, r, err)
		}
	}
}

// What a platform has spent counts in a recording as it does on the hub.
func TestARecordingCountsWhatIsSpent(t *testing.T) {
	for most, fits := range map[int]bool{6: true, 5: false} {
		row := placementtest.Cluster{Name: "c", Has: cores(9), Currency: "EUR", Prices: cores(1)}
		r := &Recording{
			Version: recordingVersion, At: recordedAt, Clusters: []v1alpha1.MemberCluster{plainCluster(row.MemberCluster())}, Policies: []v1alpha1.PlacementPolicy{budget(most)},
			Offering: computing().Offerings[0], Order: Order{ID: "si-new", PlanID: "2", Consumer: placement.Consumer{Platform: "cf"}},
		}
		held, _ := plainInstance(instance("si-1", "c", "", 4))
		r.Instances = append(r.Instances, held)
		if _, _, err := r.decide(); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "2920 EUR are held, 1460 EUR asked for") {
			t.Errorf("with a budget of %d and 4 spent: %v", most, err)
		}
	}
}

// A recorded instance holds what it held on the hub, and keeps others out of the room that is made for it.
func TestARecordedInstanceHoldsTheSame(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.ServiceInstance){
		"delivered": func(*v1alpha1.ServiceInstance) {},
		"with hosts, ports and pods": func(i *v1alpha1.ServiceInstance) {
			d := i.Status.Decision
			d.Hosts, d.Placements[0].PublicPorts, d.Placements[0].LargestPods = []string{"shop"}, map[string]int32{"mqtt": 1883}, []corev1.ResourceList{cores(1), cores(2)}
		},
		"through a hub": func(i *v1alpha1.ServiceInstance) {
			i.Status.Delivered.Decision.Placements[0].Peering = &v1alpha1.PlacementPeering{Hub: "hub"}
		},
		"between two currencies": func(i *v1alpha1.ServiceInstance) {
			i.Status.Decision = i.Status.Decision.DeepCopy()
			i.Status.Decision.Placements[0].Currency = "USD"
		},
		"with something that it has left": func(i *v1alpha1.ServiceInstance) {
			i.Status.Left = []v1alpha1.LeftPlacement{{Placement: v1alpha1.Placement{Cluster: "d", Reserved: cores(3)}}}
		},
		"under way": func(i *v1alpha1.ServiceInstance) {
			i.Status.Operation = &v1alpha1.Operation{State: v1alpha1.StateInProgress}
		},
		"for which room is made": func(i *v1alpha1.ServiceInstance) {
			i.Status.Decision, i.Status.Delivered, i.Status.Preemption = nil, nil, &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "c"}}
		},
		"deleted, for which no room is made any more": func(i *v1alpha1.ServiceInstance) {
			i.DeletionTimestamp, i.Status.Preemption = &recordedAt, &v1alpha1.Preemption{Room: v1alpha1.Room{Cluster: "c"}}
		},
	} {
		one := instance("si-1", "c", "silver", 4)
		change(one)
		plain, recorded := plainInstance(one)
		if got, want := placement.HoldingOf(&plain), placement.HoldingOf(one); !recorded || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: it holds %+v, want %+v", name, got, want)
		}
	}
}
