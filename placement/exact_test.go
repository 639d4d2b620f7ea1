package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// fleetOf returns clusters with these numbers of cores, that answer.
func fleetOf(cores ...int64) (fleet []*Cluster) {
	for i, n := range cores {
		fleet = append(fleet, &Cluster{
			Name: fmt.Sprintf("cluster-%05d", i), Ready: true, AccessVerified: true, Labels: labels.Set{},
			Allocatable: Resources{corev1.ResourceCPU: n * 1000},
		})
	}
	return fleet
}

// The only pair of clusters that is near enough is the worst one by score, so that a search from the
// best down would not come to it.
func TestTheOnlyPairOfComponentsIsFoundAmongThousands(t *testing.T) {
	fleet := fleetOf(make([]int64, 3000)...)
	for i, c := range fleet {
		c.Allocatable[corev1.ResourceCPU] = int64(4+3000-i) * 1000
	}
	first, second := fleet[2998], fleet[2999]
	first.Allocatable[corev1.ResourceCPU], second.Allocatable[corev1.ResourceCPU] = 2000, 2000
	first.Latencies = map[string]Measured{second.Name: {Median: 5 * time.Millisecond}}
	r := Request{
		ID: "si-new", Links: []Link{{Between: [2]int{0, 1}, Most: 10 * time.Millisecond}},
		Components: []Component{{Name: "db", Resources: Resources{corev1.ResourceCPU: 2000}}, {Name: "web", Resources: Resources{corev1.ResourceCPU: 2000}}},
	}
	for _, c := range fleet[:2998] {
		c.ForeignUse = Resources{corev1.ResourceCPU: c.Allocatable[corev1.ResourceCPU] - 3000} // one fits, and not both
	}
	d, err := Place(r, stock(fleet).Snapshot())
	if err != nil || !d.Uses(first.Name) || !d.Uses(second.Name) {
		t.Errorf("they are on %v: %v", d.Placements, err)
	}
}

// A search that has ended at its limit does not say that there is nothing.
func TestASearchThatWasCutOffSaysSo(t *testing.T) {
	fleet := fleetOf(make([]int64, 300)...)
	for i, c := range fleet { // each is near to its neighbours, and no three are near to each other
		c.Allocatable[corev1.ResourceCPU] = 10_000
		c.Latencies = map[string]Measured{}
		for k := range fleet {
			if (i+k)%2 == 1 {
				c.Latencies[fleet[k].Name] = Measured{Median: time.Millisecond}
			}
		}
	}
	r := Request{ID: "si-new"}
	for i := range 5 { // a ring of five, which two colours do not suffice for
		r.Components = append(r.Components, Component{Name: fmt.Sprintf("part-%d", i), Resources: Resources{corev1.ResourceCPU: 6000}})
		r.Links = append(r.Links, Link{Between: [2]int{i, (i + 1) % 5}, Most: time.Millisecond})
	}
	_, err := Place(r, stock(fleet).Snapshot())
	if err == nil || !strings.Contains(err.Error(), "none of the first 1000000 combinations of clusters takes all components") {
		t.Errorf("it says %v", err)
	}
}

// Expressions over maps see the keys in their order. Otherwise the same decision would differ from
// one time to the next.
func TestExpressionsOverMapsAreTheSameEachTime(t *testing.T) {
	fleet := fleetOf(16)
	for i := range 12 {
		fleet[0].Labels[fmt.Sprintf("l%02d", i)] = "x"
	}
	s := stock(fleet).Snapshot()
	for expression, want := range map[string]bool{
		"cluster.labels.map(k, k)[0] == 'l00'":                                                         true,
		"cluster.labels.map(k, k)[11] == 'l03'":                                                        false,
		"cluster.map(k, k)[0] == 'labels' && consumer.map(k, k)[0] == 'claims'":                        true,
		"request.map(k, k)[4] == 'resources'":                                                          true,
		"cluster.labels.exists(k, cluster.labels.all(a, cluster.labels.all(b, a != b || k == 'l11')))": true,
	} {
		rule, err := CompileRule("policy", "", v1alpha1.PolicyRule{Name: "first", Expression: expression})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{ID: "si-new", Resources: Resources{corev1.ResourceCPU: 1000}, Rules: []Rule{rule}}
		_, first := Place(r, s)
		for range 100 {
			if _, err := Place(r, s); fmt.Sprint(err) != fmt.Sprint(first) {
				t.Fatalf("%s: once %v, and then %v", expression, first, err)
			}
		}
		if (first == nil) != want {
			t.Errorf("%s: %v", expression, first)
		}
	}
}

// Seventy victims of a low class are too many, so one of a higher class leaves.
func TestOneDearVictimLeavesWhereTooManyCheapOnesWouldHaveTo(t *testing.T) {
	inventory := stock(fleetOf(140))
	inventory.SetPolicies(Policies{{Name: "classes", Classes: []v1alpha1.PriorityClass{
		{Name: "gold", Value: 1000}, {Name: "silver", Value: 100}, {Name: "bronze", Value: 1},
	}}})
	hold := func(instance, class string, cores int64) {
		inventory.Reserve(Holding{Instance: instance, Class: class, Held: map[string]Resources{"cluster-00000": {corev1.ResourceCPU: cores * 1000}}})
	}
	for i := range 70 {
		hold(fmt.Sprintf("si-%d", i), "bronze", 1)
	}
	hold("si-large", "silver", 70)
	p := Preempt(Request{ID: "si-new", Class: "gold", Resources: Resources{corev1.ResourceCPU: 70_000}}, inventory.Snapshot())
	if p == nil || len(p.Victims) != 1 || p.Victims[0].Instance != "si-large" {
		t.Errorf("room is made by %+v", p)
	}
}

// The weights of thousands of policies add up to more than 32 bits.
func TestThePreferencesOfThousandsOfPoliciesAddUp(t *testing.T) {
	fleet := fleetOf(16, 16)
	fleet[1].Claims = []v1alpha1.Claim{{Name: "green", Value: "yes", Assurance: v1alpha1.AssuranceSelf}}
	rule, err := CompileRule("policy", "", v1alpha1.PolicyRule{Name: "green", Claim: &v1alpha1.ClaimRule{Name: "green"}})
	if err != nil {
		t.Fatal(err)
	}
	r := Request{ID: "si-new", Resources: Resources{corev1.ResourceCPU: 1000}}
	for range 7000 * 32 {
		r.Preferences = append(r.Preferences, Preference{rule, 100})
	}
	if d, err := Place(r, stock(fleet).Snapshot()); err != nil || !d.Uses(fleet[1].Name) || d.Placements[0].Score != 99 {
		t.Errorf("it is on %+v: %v", d.Placements, err)
	}
}
