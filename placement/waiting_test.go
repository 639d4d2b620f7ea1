package placement

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// inRegion returns a cluster of a region with some cores.
func inRegion(name, region string, cores int64) *Cluster {
	c := &Cluster{Name: name, Region: region, Ready: true, AccessVerified: true, Labels: labels.Set{}, Allocatable: Resources{corev1.ResourceCPU: cores}}
	if region != "" {
		c.Labels[v1alpha1.LabelRegion] = region
	}
	return c
}

// withNodes adds nodes that have some cores free.
func withNodes(c *Cluster, free ...int64) *Cluster {
	var nodes []Resources
	for _, cores := range free {
		nodes = append(nodes, Resources{corev1.ResourceCPU: cores})
	}
	c.Holes = HolesOf(nodes)
	return c
}

// What makes room for a request need not be a change of the cluster on which it is placed then.
func TestAChangeElsewhereWakesWhoIsHelped(t *testing.T) {
	app := Consumer{Platform: "cf", Space: "s", Application: "shop"}
	near := func(apart bool) []v1alpha1.Affinity {
		return []v1alpha1.Affinity{{With: v1alpha1.ScopeApplication, By: v1alpha1.LabelRegion, Apart: apart}}
	}
	spread := func(each bool) *Spread { return &Spread{By: []string{v1alpha1.LabelRegion}, Each: each} }
	other := Holding{Instance: "si-other", Consumer: app, Held: map[string]Resources{"a1": {corev1.ResourceCPU: 1}}}
	cordoned := func(c *Cluster) *Cluster { c.Cordoned = true; return c }
	measured := func(c *Cluster) *Cluster { c.Latency = time.Millisecond; return c }
	for name, row := range map[string]struct {
		fleet   []*Cluster
		held    []Holding
		request Request
		event   func(*Inventory)
	}{
		"apart: the other one leaves a cordoned cluster of the region": {
			fleet: []*Cluster{cordoned(inRegion("a1", "a", 4)), inRegion("a2", "a", 4)}, held: []Holding{other},
			request: Request{Affinity: near(true)}, event: func(inv *Inventory) { inv.Release("si-other") },
		},
		"apart: the other one leaves a cluster that is too small": {
			fleet: []*Cluster{inRegion("a1", "a", 1), inRegion("a2", "a", 4)}, held: []Holding{other},
			request: Request{Affinity: near(true), Resources: Resources{corev1.ResourceCPU: 2}}, event: func(inv *Inventory) { inv.Release("si-other") },
		},
		"apart: the other one's cluster is of another region": {
			fleet: []*Cluster{cordoned(inRegion("a1", "a", 4)), inRegion("a2", "a", 4)}, held: []Holding{other},
			request: Request{Affinity: near(true)}, event: func(inv *Inventory) { inv.UpsertCluster(cordoned(inRegion("a1", "b", 4))) },
		},
		"apart: a free cluster is of another region": {
			fleet: []*Cluster{cordoned(inRegion("a1", "a", 4)), inRegion("a2", "a", 4)}, held: []Holding{other},
			request: Request{Affinity: near(true)}, event: func(inv *Inventory) { inv.UpsertCluster(inRegion("a2", "b", 4)) },
		},
		"together: a free cluster is of the other one's region": {
			fleet: []*Cluster{cordoned(inRegion("a1", "a", 4)), inRegion("b1", "b", 4)}, held: []Holding{other},
			request: Request{Affinity: near(false)}, event: func(inv *Inventory) { inv.UpsertCluster(inRegion("b1", "a", 4)) },
		},
		"apart: the other one's cluster is no longer there": {
			fleet: []*Cluster{cordoned(inRegion("a1", "a", 4)), inRegion("a2", "a", 4)}, held: []Holding{other},
			request: Request{Affinity: near(true)}, event: func(inv *Inventory) { inv.DeleteCluster("a1") },
		},
		"together: the last other one goes": {
			fleet: []*Cluster{inRegion("a1", "a", 1), inRegion("b1", "b", 4)}, held: []Holding{other},
			request: Request{Affinity: near(false), Resources: Resources{corev1.ResourceCPU: 2}}, event: func(inv *Inventory) { inv.Release("si-other") },
		},
		"together: the last other one is updated to another application": {
			fleet: []*Cluster{inRegion("a1", "a", 1), inRegion("b1", "b", 4)}, held: []Holding{other},
			request: Request{Affinity: near(false), Resources: Resources{corev1.ResourceCPU: 2}},
			event: func(inv *Inventory) {
				_, _ = inv.Place(Request{ID: "si-other", Consumer: Consumer{Platform: "cf", Space: "s", Application: "else"}, Current: []string{"a1"}, Resources: Resources{corev1.ResourceCPU: 1}})
			},
		},
		"together: another one comes elsewhere": {
			fleet: []*Cluster{inRegion("a1", "a", 1), inRegion("b1", "b", 4)}, held: []Holding{other},
			request: Request{Affinity: near(false), Resources: Resources{corev1.ResourceCPU: 2}},
			event: func(inv *Inventory) {
				_, _ = inv.Place(Request{ID: "si-third", Consumer: app, Resources: Resources{corev1.ResourceCPU: 2}})
			},
		},
		"spread: a region is corrected": {
			fleet:   []*Cluster{inRegion("a1", "a", 4), inRegion("a2", "a", 4)},
			request: Request{Clusters: 2, Spread: spread(false)}, event: func(inv *Inventory) { inv.UpsertCluster(inRegion("a2", "b", 4)) },
		},
		"a pod: a node has room again": {
			fleet:   []*Cluster{withNodes(inRegion("a1", "a", 8), 3, 3)},
			request: Request{Resources: Resources{corev1.ResourceCPU: 4}, LargestPods: []Resources{{corev1.ResourceCPU: 4}}},
			event:   func(inv *Inventory) { inv.UpsertCluster(withNodes(inRegion("a1", "a", 8), 5, 1)) },
		},
		"a pod: another one will not run": {
			fleet:   []*Cluster{withNodes(inRegion("a1", "a", 8), 5, 3)},
			held:    []Holding{{Instance: "si-other", Held: map[string]Resources{"a1": {corev1.ResourceCPU: 4}}, Pods: map[string][]Resources{"a1": {{corev1.ResourceCPU: 4}}}}},
			request: Request{Resources: Resources{corev1.ResourceCPU: 4}, LargestPods: []Resources{{corev1.ResourceCPU: 4}}},
			event:   func(inv *Inventory) { inv.Release("si-other") },
		},
		"a pod of replicas: a node has room again": {
			fleet:   []*Cluster{withNodes(inRegion("a1", "a", 8), 3, 3)},
			request: Request{Replicas: 2, Clusters: 1, Resources: Resources{corev1.ResourceCPU: 4}, LargestPods: []Resources{{corev1.ResourceCPU: 4}}},
			event:   func(inv *Inventory) { inv.UpsertCluster(withNodes(inRegion("a1", "a", 8), 5, 1)) },
		},
		"a pod, near enough: a node has room again": {
			fleet:   []*Cluster{measured(withNodes(inRegion("a1", "a", 8), 3, 3))},
			request: Request{MaxLatency: &v1alpha1.LatencyBound{Milliseconds: 5}, Resources: Resources{corev1.ResourceCPU: 4}, LargestPods: []Resources{{corev1.ResourceCPU: 4}}},
			event:   func(inv *Inventory) { inv.UpsertCluster(measured(withNodes(inRegion("a1", "a", 8), 5, 1))) },
		},
		"each: a region without room is deleted": {
			fleet:   []*Cluster{inRegion("a1", "a", 4), inRegion("b1", "b", 0)},
			request: Request{Spread: spread(true)}, event: func(inv *Inventory) { inv.DeleteCluster("b1") },
		},
		"each: a cluster without room is of another region": {
			fleet:   []*Cluster{inRegion("a1", "a", 4), inRegion("b1", "b", 0)},
			request: Request{Spread: spread(true)}, event: func(inv *Inventory) { inv.UpsertCluster(inRegion("b1", "a", 0)) },
		},
		"an update: another one leaves the cluster": {
			fleet: []*Cluster{inRegion("a1", "a", 4)},
			held: []Holding{
				{Instance: "si-other", Held: map[string]Resources{"a1": {corev1.ResourceCPU: 2}}},
			},
			request: Request{Current: []string{"a1"}, Resources: Resources{corev1.ResourceCPU: 4}}, event: func(inv *Inventory) { inv.Release("si-other") },
		},
		"an update: it keeps what it has": {
			fleet: []*Cluster{cordoned(inRegion("a1", "a", 4))},
			held: []Holding{
				{Instance: "si-new", Consumer: app, Held: map[string]Resources{"a1": {corev1.ResourceCPU: 2}}}, {Instance: "si-other", Held: map[string]Resources{"a1": {corev1.ResourceCPU: 2}}},
			},
			request: Request{Current: []string{"a1"}, Resources: Resources{corev1.ResourceCPU: 4}}, event: func(inv *Inventory) { inv.Release("si-other") },
		},
		"an update: a component keeps what it has": {
			fleet: []*Cluster{cordoned(inRegion("a1", "a", 4))},
			held: []Holding{
				{Instance: "si-new", Consumer: app, Held: map[string]Resources{"a1": {corev1.ResourceCPU: 2}}}, {Instance: "si-other", Held: map[string]Resources{"a1": {corev1.ResourceCPU: 2}}},
			},
			request: Request{Components: []Component{{Name: "web", Resources: Resources{corev1.ResourceCPU: 4}}}, ComponentClusters: map[string]string{"web": "a1"}},
			event:   func(inv *Inventory) { inv.Release("si-other") },
		},
		"a link: the latency is measured, and nothing else changes": {
			fleet: []*Cluster{inRegion("a1", "a", 4), inRegion("a2", "a", 4)},
			request: Request{
				Components: []Component{{Name: "web", Resources: Resources{corev1.ResourceCPU: 4}}, {Name: "db", Resources: Resources{corev1.ResourceCPU: 4}}},
				Links:      []Link{{Between: [2]int{0, 1}, Most: time.Millisecond}},
			},
			event: func(inv *Inventory) {
				linked := inRegion("a1", "a", 4)
				linked.Latencies = map[string]Measured{"a2": {Median: time.Millisecond}}
				inv.UpsertCluster(linked)
			},
		},
		"a latency: it is measured, and nothing else changes": {
			fleet: []*Cluster{inRegion("a1", "a", 4)}, request: Request{MaxLatency: &v1alpha1.LatencyBound{Milliseconds: 5}},
			event: func(inv *Inventory) { inv.UpsertCluster(measured(inRegion("a1", "a", 4))) },
		},
		"a host is given back": {
			fleet:   []*Cluster{inRegion("a1", "a", 4)},
			held:    []Holding{{Instance: "si-other", Hosts: []string{"shop"}, Held: map[string]Resources{"a1": {corev1.ResourceCPU: 1}}}},
			request: Request{Hosts: map[string]string{"shop": "host"}}, event: func(inv *Inventory) { inv.Release("si-other") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := stock(row.fleet)
			for _, h := range row.held {
				inventory.Reserve(h)
			}
			r := row.request
			r.ID, r.Consumer = "si-new", app
			if r.Resources == nil {
				r.Resources = Resources{corev1.ResourceCPU: 1}
			}
			var woken []string
			inventory.OnWake(func(instance string) { woken = append(woken, instance) })
			if _, err := inventory.Place(r); err == nil {
				t.Fatal("it is placed at once")
			}
			row.event(inventory)
			if _, err := Place(r, inventory.Snapshot()); err != nil {
				t.Fatalf("it does not fit after the change: %v", err)
			}
			if !slices.Contains(woken, "si-new") {
				t.Errorf("woken are %v", woken)
			}
		})
	}
}

// Whenever a change makes room for a request that waits, it is woken.
func TestWhoeverFitsIsWoken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := func(prefix string, n int) string {
			return fmt.Sprintf("%s%d", prefix, rapid.IntRange(0, n).Draw(t, prefix))
		}
		cluster := func() *Cluster {
			c := inRegion(name("c", 4), rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "region"), rapid.Int64Range(0, 6).Draw(t, "cpu"))
			c.Cordoned = rapid.IntRange(0, 4).Draw(t, "cordoned") == 0
			c.ForeignUse = Resources{corev1.ResourceCPU: rapid.Int64Range(0, 2).Draw(t, "foreign")}
			if rapid.IntRange(0, 2).Draw(t, "has nodes") == 0 {
				withNodes(c, rapid.SliceOfN(rapid.Int64Range(0, 6), 1, 3).Draw(t, "free on nodes")...)
			}
			c.Latency = time.Duration(rapid.IntRange(0, 3).Draw(t, "latency")) * time.Millisecond
			c.Latencies = map[string]Measured{"c0": {Median: time.Duration(rapid.IntRange(1, 3).Draw(t, "from c0")) * time.Millisecond}}
			c.Claims = []v1alpha1.Claim{{Name: v1alpha1.ClaimDatacenterCountry, Value: rapid.SampledFrom([]string{"DE", "FR"}).Draw(t, "country"), Assurance: v1alpha1.AssuranceSelf}}
			c.Currency, c.Prices = "EUR", map[corev1.ResourceName]int64{corev1.ResourceCPU: rapid.Int64Range(1, 3).Draw(t, "price") * 1000}
			return c
		}
		consumer := func() Consumer { return Consumer{Platform: "cf", Space: "s", Application: name("app", 1)} }
		inventory, woken := NewInventory(), map[string]bool{}
		inventory.OnWake(func(instance string) { woken[instance] = true })
		for range rapid.IntRange(0, 4).Draw(t, "clusters") {
			inventory.UpsertCluster(cluster())
		}
		waiting, changed := map[string]Request{}, ""
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			clear(woken)
			switch step := rapid.IntRange(0, 5).Draw(t, "step"); step {
			case 0, 1:
				inventory.UpsertCluster(cluster())
			case 2:
				inventory.DeleteCluster(name("c", 4))
			case 3:
				changed = name("si-", 9)
				inventory.Release(changed)
				delete(waiting, changed)
			default:
				r := drawWaiting(t, name("si-", 9), consumer())
				held := inventory.ClustersHeld(r.ID)
				if len(held) > 0 && rapid.Bool().Draw(t, "update") {
					r.Current = held
				} else if len(held) > 0 {
					continue
				}
				if _, err := inventory.Place(r); err != nil {
					waiting[r.ID] = r
				} else {
					delete(waiting, r.ID)
				}
			}
			for again := true; again; {
				again = false
				for _, id := range slices.Sorted(maps.Keys(waiting)) {
					r := waiting[id]
					if _, err := Place(r, inventory.Snapshot()); err != nil {
						continue
					}
					if !woken[id] {
						t.Fatalf("%+v fits and is not woken", r)
					}
					delete(waiting, id) // it has its chance, and leaves it
					inventory.Reserve(Holding{Instance: id, Consumer: r.Consumer, Held: inventory.holding(id).Held})
					again = true // which may help those before
				}
			}
		}
		for i := range 10 {
			inventory.Release(fmt.Sprintf("si-%d", i))
		}
		if !reflect.DeepEqual(inventory.waiting, newWaiters()) {
			t.Fatalf("nobody waits, and there is %+v", inventory.waiting)
		}
	})
}

// Rules of requests that wait: two that read the request, and two that require claims.
var (
	inRegionOfPlan = mustCompile(v1alpha1.PolicyRule{Expression: "request.plan == '' || cluster.region == request.plan"})
	onlyLarge      = mustCompile(v1alpha1.PolicyRule{Expression: "request.resources['cpu'] > 3 || cluster.region == 'a'"})
	inGermany      = mustCompile(v1alpha1.PolicyRule{Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"DE"}}})
	inFrance       = mustCompile(v1alpha1.PolicyRule{Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"FR"}}})
)

func mustCompile(from v1alpha1.PolicyRule) Rule {
	from.Name = "rule"
	rule, err := CompileRule("policy", "", from)
	if err != nil {
		panic(err)
	}
	return rule
}

// Requests that a cluster takes or not by their consumer are not judged by another's.
func TestHostsOfConsumersWaitForTheirOwnDomain(t *testing.T) {
	granting := func(platform string) *Cluster {
		c := inRegion("a1", "a", 4)
		c.Exposure = &v1alpha1.ClusterExposure{Domain: "apps.example.org", Domains: []v1alpha1.ExposureDomain{{Name: "shop.example.com", Consumers: []v1alpha1.ConsumerReference{{Platform: platform}}}}}
		return c
	}
	inventory, woken := watched(inRegion("a1", "a", 4))
	for _, platform := range []string{"one", "two"} {
		r := Request{ID: "si-" + platform, Consumer: Consumer{Platform: platform}, Hosts: map[string]string{"www.shop.example.com": "host"}}
		if _, err := inventory.Place(r); err == nil {
			t.Fatalf("%s is placed without a grant", r.ID)
		}
	}
	woken()
	inventory.UpsertCluster(granting("two"))
	if got := woken(); got["si-two"] != 1 || got["si-one"] != 0 {
		t.Errorf("woken are %v", got)
	}
}

// Requests that a rule refuses by what their consumers have proven, or by their pods, are not judged by others' either.
func TestWhatRulesReadOfOrdersIsNotJudgedByOthers(t *testing.T) {
	pods := func(image string) []catalog.Pod { return []catalog.Pod{{Images: []string{image}}} }
	german := v1alpha1.PolicyRule{AppliesTo: v1alpha1.RuleConsumer, Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimConsumerCountry, Values: []string{"DE"}}}
	for name, row := range map[string]struct {
		rule        Rule
		never, fits Request
	}{
		"proofs": {mustCompile(german), Request{Proven: buyer("one", "FR").Status.Claims}, Request{Proven: buyer("two", "DE").Status.Claims}},
		"pods":   {workloadsRule("policy", "", &v1alpha1.WorkloadRules{Registries: []string{"registry.example"}}), Request{Pods: pods("nginx")}, Request{Pods: pods("registry.example/app")}},
	} {
		inventory, woken := watched(inRegion("a1", "a", 1))
		row.never.ID, row.fits.ID = "si-never", "si-fits"
		for _, r := range []Request{row.never, row.fits} {
			r.Resources, r.Rules = Resources{corev1.ResourceCPU: 2}, []Rule{row.rule}
			if _, err := inventory.Place(r); err == nil {
				t.Fatalf("%s: %s is placed without room", name, r.ID)
			}
		}
		inventory.UpsertCluster(inRegion("a1", "a", 4))
		if got := woken(); got["si-fits"] != 1 || got["si-never"] != 0 {
			t.Errorf("%s: woken are %v", name, got)
		}
	}
}

func drawWaiting(t *rapid.T, id string, consumer Consumer) Request {
	r := Request{ID: id, Consumer: consumer, Resources: Resources{corev1.ResourceCPU: rapid.Int64Range(1, 5).Draw(t, "asked")}, Clusters: rapid.IntRange(1, 3).Draw(t, "clusters asked")}
	if r.Consumer.Plan = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "plan"); rapid.IntRange(0, 3).Draw(t, "ruled") == 0 {
		r.Rules = []Rule{rapid.SampledFrom([]Rule{inRegionOfPlan, onlyLarge, inGermany, inFrance}).Draw(t, "rule")}
	}
	if rapid.IntRange(0, 3).Draw(t, "has a large pod") == 0 {
		r.LargestPods = []Resources{{corev1.ResourceCPU: min(r.Resources[corev1.ResourceCPU], 4)}}
	}
	switch rapid.IntRange(0, 8).Draw(t, "kind") {
	case 8:
		r.MaxLatency = &v1alpha1.LatencyBound{Milliseconds: 2, From: rapid.SampledFrom([]string{"", "c0"}).Draw(t, "from")}
	case 7:
		r.MaxPrice = &Price{"EUR", rapid.Int64Range(1, 12).Draw(t, "max price")}
	case 6:
		r.Selector = labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: "a"})
	case 0:
		r.Affinity = []v1alpha1.Affinity{{With: v1alpha1.ScopeApplication, By: v1alpha1.LabelRegion, Apart: rapid.Bool().Draw(t, "apart")}}
	case 1:
		r.Spread = &Spread{By: []string{v1alpha1.LabelRegion}, Each: rapid.Bool().Draw(t, "each"), MaxSkew: rapid.IntRange(1, 3).Draw(t, "skew")}
	case 2:
		r.Replicas = rapid.IntRange(1, 6).Draw(t, "replicas")
	case 3:
		r.Components = []Component{{Name: "db", Resources: r.Resources}, {Name: "web", Resources: Resources{corev1.ResourceCPU: 2}}}
		r.Links = []Link{{Between: [2]int{0, 1}, Most: 2 * time.Millisecond}}
	}
	return r
}
