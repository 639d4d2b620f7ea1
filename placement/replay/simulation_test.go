package replay

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

func TestAnOrderBookIsRead(t *testing.T) {
	booked, err := ParseOrders([]byte("\uFEFF"+`plan, at, for, count, parameters, space
small, 90m, 36h, 2, "{""clusters"": 2}", s
large,,,,,
`), 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(booked) != 3 || booked[0].ID != "order-2-1" || booked[1].ID != "order-2-2" || booked[2].ID != "order-3" {
		t.Fatalf("read %+v", booked)
	}
	first := booked[0]
	if first.At != Period(90*time.Minute) || first.For.String() != "36h" || first.Plan != "small" || string(first.Parameters) != `{"clusters": 2}` || first.Consumer.Space != "s" {
		t.Errorf("read %+v", first)
	}
}

func TestAnOrderBookWithMistakesIsRefused(t *testing.T) {
	for book, want := range map[string]string{
		"":                                "the line that names the columns",
		"plan,cores\n":                    `line 1: column "cores": want id, at, for, count, service, plan, `,
		"plan,at\nsmall,soon\n":           `line 2: at: "soon": want a duration such as 90m or 36h`,
		"plan,for\nsmall,-1h\n":           `line 2: for: "-1h": want a duration`,
		"plan,for\nsmall,9000000h\n":      `line 2: for: "9000000h": want a duration such as 90m or 36h, of at most 876000h`,
		"plan,at,plan\nsmall,1h,x\n":      `line 1: column "plan" is there twice`,
		"id,plan\n#1,small\n#1,small\n":   `line 3: id "#1" is that of line 2 too`,
		"# expected\nplan\n":              `line 1: column "# expected": want id`,
		"plan,count\nsmall,0\n":           `line 2: count: "0": want a number from 1 to 100000`,
		"plan,parameters\nsmall,{\n":      "line 2: parameters: {: want JSON",
		"plan,id\nsmall,a\n,b\n":          "line 3: plan: want the name of a plan",
		"id,plan\na,small\na,small\n":     `line 3: id "a" is that of line 2 too`,
		"id,plan\na,small,too many\n":     "wrong number of fields",
		"plan,count\nsmall,2\nsmall,2\n":  "line 3: with it there are more than 3 orders",
		"id,plan\na-2,small\n\na,small\n": "",
	} {
		if _, err := ParseOrders([]byte(book), 3); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", book, err, want)
		}
	}
}

func TestADescriptionWithMistakesIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"kind: MemberCluster\nspec: {regoin: eu}\n":                                                                `document 1: *v1alpha1.MemberCluster: error unmarshaling JSON: while decoding JSON: json: unknown field "regoin"`,
		"kind: MemberCluster\nmetadata: {name: a}\n---\nkind: Deployment\n":                                        `document 2: kind "Deployment": want MemberCluster, ServiceOffering, PlacementPolicy or Consumer`,
		"kind: MemberCluster\nmetadata: {name: a}\n---\nkind: MemberCluster\nmetadata: {name: a}\n":                "document 2: MemberCluster a is described in document 1 too",
		"kind: Consumer\nspec: {}\n":                                                                               "document 1: Consumer: metadata.name is missing",
		"kind: MemberCluster\nmetadata: {name: a}\nspec: {prices: {currency: EUR, perHour: {cpu: -1}}}\n":          "document 1: MemberCluster a: spec.prices.perHour: cpu: -1: want an amount of money",
		"kind: MemberCluster\nmetadata: {name: a}\nstatus: {allocatable: {cpu: -8}}\n":                             "document 1: MemberCluster a: status.allocatable: cpu is negative",
		"kind: MemberCluster\nmetadata: {name: a}\nspec: {sell: {atMost: {mem: 1Gi}}}\n":                           `spec.sell.atMost: "mem" is no resource`,
		"kind: PlacementPolicy\nmetadata: {name: p}\nspec: {require: [{name: r, expression: cluster.foo == 1}]}\n": `document 1: PlacementPolicy p: rule r: expression: column 8: cluster has no field "foo"`,
	} {
		if _, err := ParseFleet([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// drawn is a fleet with plans of one to four cores, and orders of them.
func drawnBook(t *rapid.T) (*Fleet, []Booked, time.Duration) {
	f := &Fleet{charts: recorded(nil)}
	for i := range rapid.IntRange(1, 3).Draw(t, "clusters") {
		row := placementtest.Cluster{
			Name: fmt.Sprintf("c%d", i), Has: cores(rapid.IntRange(1, 8).Draw(t, "has")), Currency: "EUR", Prices: cores(rapid.IntRange(0, 3).Draw(t, "price")),
		}
		f.Clusters = append(f.Clusters, *row.MemberCluster())
	}
	offering := v1alpha1.ServiceOfferingSpec{ID: "compute", Name: "compute"}
	for n := 1; n <= 4; n++ {
		offering.Plans = append(offering.Plans, v1alpha1.Plan{
			ID: fmt.Sprint(n), Name: fmt.Sprint(n), Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Limits: cores(n)},
		})
	}
	f.Offerings = append(f.Offerings, offering)
	hours := func(label string, most int) Period {
		return Period(rapid.IntRange(0, most).Draw(t, label)) * Period(time.Hour)
	}
	var orders []Booked
	for i := range rapid.IntRange(1, 12).Draw(t, "orders") {
		orders = append(orders, Booked{ID: fmt.Sprint(i), At: hours("at", 10), For: hours("for", 5), Plan: fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "plan"))})
	}
	return f, orders, time.Duration(hours("wait", 6))
}

// A second, independent account of a simulation: nothing is sold beyond what there is at any time, nobody waits
// longer than may be, and who is refused found no room at any time until then.
func TestASimulationKeepsItsBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, orders, wait := drawnBook(t)
		s, err := f.Play(orders, wait, recordedAt.Time)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := f.Play(orders, wait, recordedAt.Time); err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("played again it is another one: %v", err)
		}
		has := map[string]int{}
		for i := range f.Clusters {
			q := f.Clusters[i].Status.Allocatable[corev1.ResourceCPU]
			has[f.Clusters[i].Name] = int(q.Value())
		}
		asks := func(o *Outcome) int { return int(o.Plan[0] - '0') }
		left := func(cluster string, at Period) int {
			n := has[cluster]
			for i := range s.Outcomes {
				if o := &s.Outcomes[i]; o.Sold && o.Clusters[0] == cluster && o.Since <= at && (o.For == 0 || at < o.Since+o.For) {
					n -= asks(o)
				}
			}
			return n
		}
		revenue := 0.0
		for i := range s.Outcomes {
			o := &s.Outcomes[i]
			if o.Sold {
				if o.Since < o.At || o.Since > o.At+Period(wait) || left(o.Clusters[0], o.Since) < 0 {
					t.Fatalf("%+v, of %s waiting; %d are left there", o, wait, left(o.Clusters[0], o.Since))
				}
				until := s.Ended
				if o.For > 0 {
					until = min(until, o.Since+o.For)
				}
				revenue += float64(o.Prices["EUR"]) * time.Duration(until-o.Since).Hours()
				continue
			}
			for at := o.At; at < o.At+Period(wait) || at == o.At; at += Period(time.Hour) {
				for cluster := range has {
					if left(cluster, at) >= asks(o) {
						t.Fatalf("%+v is refused, and at %s there are %d left on %s", o, at, left(cluster, at), cluster)
					}
				}
			}
		}
		if got := float64(s.Revenue["EUR"]); got < revenue-1000 || got > revenue+1000 {
			t.Fatalf("the revenue is %v, want %v", got, revenue)
		}
	})
}

// What a recording's instances hold can be sold again on the same fleet, and the recorded order after it.
func TestARecordingIsAnOrderBook(t *testing.T) {
	r := &Recording{
		Version: recordingVersion, At: recordedAt, Order: Order{ID: "si-new", PlanID: "1"},
		Offering:  v1alpha1.ServiceOfferingSpec{ID: "compute", Name: "compute", Plans: []v1alpha1.Plan{{ID: "1", Name: "one", Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Limits: cores(1)}}}},
		Clusters:  []v1alpha1.MemberCluster{*placementtest.Cluster{Name: "c", Has: cores(4)}.MemberCluster()},
		Instances: []v1alpha1.ServiceInstance{*instance("si-1", "c", "", 2), *instance("si-2", "c", "", 1)},
	}
	fleet := r.Fleet()
	s, err := fleet.Play(r.Orders(), 0, recordedAt.Time)
	if err != nil {
		t.Fatal(err)
	}
	if got := soldOf(s); got != "si-1/c: false, si-2/c: true, si-new: false" {
		t.Errorf("beside what is there: %s", got)
	}
	fleet.Instances = nil
	if s, err = fleet.Play(r.Orders(), 0, metav1.Now().Time); err != nil {
		t.Fatal(err)
	}
	if got := soldOf(s); got != "si-1/c: true, si-2/c: true, si-new: true" {
		t.Errorf("instead of what is there: %s", got)
	}
}

func soldOf(s *Simulation) string {
	var all []string
	for i := range s.Outcomes {
		all = append(all, fmt.Sprintf("%s: %t", s.Outcomes[i].ID, s.Outcomes[i].Sold))
	}
	return strings.Join(all, ", ")
}

// What a recording's clusters are made of is sold again on a management cluster. What other brokers have is no order.
func TestARecordingSellsClustersAgain(t *testing.T) {
	makers := placementtest.Cluster{Name: "makers", Driver: v1alpha1.DriverCAPI, Has: placementtest.Quantities("cpu=8,sluice.dev/clusters=1")}.MemberCluster()
	made, bought := instance("si-1", "makers", "", 4), instance("si-2", "broker", "", 0)
	made.Status.Decision.Placements[0].Reserved = placementtest.Quantities("cpu=4,sluice.dev/clusters=1")
	bought.Status.Decision.Placements[0].Reserved = placementtest.Quantities("sluice.dev/instances=1")
	r := &Recording{
		Version: recordingVersion, At: recordedAt, Order: Order{ID: "si-new", PlanID: "1"}, Offering: computing().Offerings[0],
		Clusters: []v1alpha1.MemberCluster{*makers}, Instances: []v1alpha1.ServiceInstance{*made, *bought},
	}
	fleet := r.Fleet()
	fleet.Instances = nil
	s, err := fleet.Play(r.Orders(), 0, recordedAt.Time)
	if err != nil {
		t.Fatal(err)
	}
	if got := soldOf(s); got != "si-1/makers: true, si-new: false" {
		t.Errorf("sold again: %s", got)
	}
}

// The share that was reserved is that also of amounts that no number of 64 bits holds a thousand times.
func TestASimulationOfALargeFleetCountsRight(t *testing.T) {
	f := &Fleet{charts: recorded(nil), Clusters: []v1alpha1.MemberCluster{*placementtest.Cluster{Name: "c", Has: placementtest.Quantities("memory=64Pi")}.MemberCluster()}}
	s, err := f.Play([]Booked{{ID: "half", Holding: placement.Resources{corev1.ResourceMemory: 32 << 50}}}, 0, recordedAt.Time)
	if err != nil || s.Most[corev1.ResourceMemory].PerMille != 500 {
		t.Errorf("%+v: %v", s.Most, err)
	}
}
