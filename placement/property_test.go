package placement

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

var (
	regions = []string{"", "eu", "us", "ap"}
	effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
)

func drawCluster(t *rapid.T, name string) *Cluster {
	mostly := func(label string) bool { return rapid.IntRange(0, 9).Draw(t, label) != 0 }
	amounts := func(label string, cores int64) Resources {
		return Resources{
			corev1.ResourceCPU:    rapid.Int64Range(0, cores).Draw(t, label+" cpu"),
			corev1.ResourceMemory: rapid.Int64Range(0, cores<<20).Draw(t, label+" memory"),
		}
	}
	c := &Cluster{
		Name: name, Driver: v1alpha1.DriverKube, Region: rapid.SampledFrom(regions).Draw(t, "region"),
		Ready: mostly("ready"), AccessVerified: mostly("verified"), Cordoned: !mostly("open"),
		Allocatable: amounts("allocatable", 16000), ForeignUse: amounts("foreign", 4000),
	}
	c.Labels = labels.Set{v1alpha1.LabelTier: rapid.SampledFrom([]string{"cloud", "edge"}).Draw(t, "tier")}
	if c.Region != "" {
		c.Labels[v1alpha1.LabelRegion] = c.Region
	}
	if !mostly("untainted") {
		c.Taints = []corev1.Taint{{Key: "dedicated", Effect: rapid.SampledFrom(effects).Draw(t, "effect")}}
	}
	if c.Provider = rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "provider"); c.Provider != "" {
		c.Labels[v1alpha1.LabelProvider] = c.Provider
	}
	if !mostly("known") {
		c.CapacityUnknown = "its reader is silent"
	}
	if !mostly("proven") {
		c.Unproven = "nothing was presented"
	}
	for range rapid.IntRange(0, 2).Draw(t, "claims") {
		c.Claims = append(c.Claims, v1alpha1.Claim{
			Name:      v1alpha1.ClaimDatacenterCountry,
			Value:     rapid.SampledFrom([]string{"DE", "FR", "US"}).Draw(t, "country"),
			Assurance: rapid.SampledFrom(assurances).Draw(t, "assurance"),
		})
	}
	if mostly("priced") {
		c.Currency = rapid.SampledFrom([]string{"EUR", "USD"}).Draw(t, "currency")
		c.Prices = map[corev1.ResourceName]int64{corev1.ResourceCPU: rapid.Int64Range(0, 1e9).Draw(t, "price")}
	}
	return c
}

var assurances = []v1alpha1.Assurance{
	v1alpha1.AssuranceSelf, v1alpha1.AssuranceNotary, v1alpha1.AssuranceLabel, v1alpha1.AssuranceCertified, v1alpha1.AssuranceMeasured,
}

// drawnRule is a rule, and its meaning as a function.
type drawnRule struct {
	rule    Rule
	accepts func(c *Cluster) bool
}

func drawRule(t *rapid.T) drawnRule {
	provider := rapid.SampledFrom([]string{"", "one"}).Draw(t, "of provider")
	concerned := func(accepts func(c *Cluster) bool) func(c *Cluster) bool {
		return func(c *Cluster) bool { return provider != "" && c.Provider != provider || accepts(c) }
	}
	if rapid.Bool().Draw(t, "as expression") {
		rule, err := CompileRule("policy", provider, v1alpha1.PolicyRule{Name: "german",
			Expression: "claims.exists(c, c.value == 'DE' && c.assurance != 'self')"})
		if err != nil {
			t.Fatal(err)
		}
		return drawnRule{rule, concerned(func(c *Cluster) bool {
			return slices.ContainsFunc(c.Claims, func(claim v1alpha1.Claim) bool {
				return claim.Value == "DE" && claim.Assurance != v1alpha1.AssuranceSelf
			})
		})}
	}
	least := rapid.SampledFrom(assurances[:4]).Draw(t, "least")
	rule, err := CompileRule("policy", provider, v1alpha1.PolicyRule{Name: "european",
		Claim: &v1alpha1.ClaimRule{Name: v1alpha1.ClaimDatacenterCountry, Values: []string{"EU"}, Assurance: least}})
	if err != nil {
		t.Fatal(err)
	}
	return drawnRule{rule, concerned(func(c *Cluster) bool {
		return slices.ContainsFunc(c.Claims, func(claim v1alpha1.Claim) bool {
			enough := slices.Index(assurances[:4], claim.Assurance) >= slices.Index(assurances, least) ||
				claim.Assurance == v1alpha1.AssuranceMeasured && least == v1alpha1.AssuranceSelf
			return enough && claim.Value != "US"
		})
	})}
}

func drawFleet(t *rapid.T) []*Cluster {
	n := rapid.IntRange(0, 40).Draw(t, "clusters")
	if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
		n += pageRows // more than one page
	}
	fleet := make([]*Cluster, n)
	for i := range fleet {
		fleet[i] = drawCluster(t, fmt.Sprintf("cluster-%03d", i))
	}
	return fleet
}

func drawRequest(t *rapid.T, fleet []*Cluster) Request {
	r := Request{
		ID: rapid.StringMatching(`si-[a-z]{4}`).Draw(t, "id"),
		Resources: Resources{
			corev1.ResourceCPU:    rapid.Int64Range(0, 6000).Draw(t, "cpu"),
			corev1.ResourceMemory: rapid.Int64Range(0, 6000<<20).Draw(t, "memory"),
		},
		Clusters: rapid.IntRange(0, 4).Draw(t, "asked"),
		Weights:  v1alpha1.ScoreWeights{Balance: rapid.Int32Range(0, 2).Draw(t, "balance"), Price: rapid.Int32Range(0, 2).Draw(t, "price weight")},
	}
	selector := rapid.SampledFrom([]string{"", v1alpha1.LabelRegion + "=eu", v1alpha1.LabelRegion + " in (eu,us)", "!" + v1alpha1.LabelRegion}).Draw(t, "selector")
	r.Selector, _ = labels.Parse(selector)
	if rapid.Bool().Draw(t, "tolerant") {
		r.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if rapid.Bool().Draw(t, "frugal") {
		r.MaxPrice = &Price{"EUR", rapid.Int64Range(0, 3e9).Draw(t, "max price")}
	}
	if len(fleet) > 0 && rapid.IntRange(0, 2).Draw(t, "settled") == 0 {
		i := rapid.IntRange(0, len(fleet)-1).Draw(t, "home")
		r.Current = []string{fleet[i].Name}
	}
	return r
}

func stock(fleet []*Cluster) *Inventory {
	inventory := NewInventory()
	for _, c := range fleet {
		inventory.UpsertCluster(c)
	}
	return inventory
}

// acceptable implements the filters a second time, without pages, sets or columns.
func acceptable(r Request, c *Cluster, free Resources) bool {
	settled := slices.Contains(r.Current, c.Name)
	if !settled {
		if !c.Ready || !c.AccessVerified || c.CapacityUnknown != "" || c.Cordoned || c.Unproven != "" {
			return false
		}
		for _, taint := range c.Taints {
			if taint.Effect != corev1.TaintEffectPreferNoSchedule && len(r.Tolerations) == 0 {
				return false
			}
		}
	}
	var cost int64
	for name, amount := range r.Resources {
		if amount > 0 && amount > free[name] {
			return false
		}
		cost += mulDiv(amount, c.Prices[name], unitOf(name).priced())
	}
	if r.MaxPrice != nil && (c.Currency != r.MaxPrice.Currency || cost > r.MaxPrice.NanoPerHour) {
		return false
	}
	return r.Selector.Matches(c.Labels)
}

func TestPlaceAgreesWithAPlainReadingOfItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := drawFleet(t)
		inventory := stock(fleet)
		r := drawRequest(t, fleet)
		var rules []drawnRule
		for range rapid.IntRange(0, 2).Draw(t, "rules") {
			drawn := drawRule(t)
			rules = append(rules, drawn)
			r.Rules = append(r.Rules, drawn.rule)
		}
		s := inventory.Snapshot()
		d, err := Place(r, s)

		fits := map[string]bool{}
		for _, c := range fleet {
			free := Resources{}
			for name := range r.Resources {
				free[name] = c.Unreserved(name)
			}
			fits[c.Name] = acceptable(r, c, free) &&
				!slices.ContainsFunc(rules, func(drawn drawnRule) bool { return !drawn.accepts(c) })
		}
		seen := map[string]bool{}
		for _, p := range d.Placements {
			if !fits[p.Cluster] {
				t.Fatalf("%s is chosen and does not fit", p.Cluster)
			}
			if seen[p.Cluster] {
				t.Fatalf("%s is chosen twice", p.Cluster)
			}
			if p.Score < 0 || p.Score > 100 {
				t.Fatalf("score %d", p.Score)
			}
			seen[p.Cluster] = true
		}
		home := len(r.Current) == 0 || fits[r.Current[0]]
		enough := len(slices.DeleteFunc(slices.Collect(maps.Keys(fits)), func(name string) bool { return !fits[name] })) >= r.ClusterCount()
		if placeable := home && enough; placeable != (err == nil) {
			t.Fatalf("placeable is %t, and Place says %v", placeable, err)
		}
		if err == nil && len(d.Placements) != r.ClusterCount() {
			t.Fatalf("%d placements of %d", len(d.Placements), r.ClusterCount())
		}
		for _, name := range r.Current {
			if err == nil && !seen[name] {
				t.Fatalf("the instance leaves %s", name)
			}
		}
		counted := len(d.Placements)
		for _, rejection := range d.Rejections {
			counted += rejection.Count
			if len(rejection.Examples) != min(rejection.Count, maxExamples) {
				t.Fatalf("%d examples of %d %s", len(rejection.Examples), rejection.Count, rejection.Reason)
			}
		}
		if counted != len(fleet) || d.Considered != len(fleet) {
			t.Fatalf("%d clusters, %d considered, %d accounted for", len(fleet), d.Considered, counted)
		}
		for _, c := range fleet {
			if !slices.Contains(r.Current, c.Name) && Accepts(r, s, c.Name) != fits[c.Name] {
				t.Fatalf("Accepts says %t of %s", !fits[c.Name], c.Name)
			}
		}
	})
}

func TestTheOrderInWhichClustersCameDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := drawFleet(t)
		r := drawRequest(t, fleet)
		want, wantErr := Place(r, stock(fleet).Snapshot())
		shuffled := rapid.Permutation(fleet).Draw(t, "order")
		got, gotErr := Place(r, stock(shuffled).Snapshot())
		if !reflect.DeepEqual(got, want) || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("got %+v, %v\nwant %+v, %v", got, gotErr, want, wantErr)
		}
	})
}

func TestAnInventoryThatChangedStepByStepEqualsOneMadeAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := drawFleet(t)
		inventory := stock(fleet)
		held := map[string]map[string]Resources{}
		rule, err := CompileRule("policy", "", v1alpha1.PolicyRule{Name: "some", Expression: "claims.exists(c, c.value == 'DE') || cluster.region == 'eu'"})
		if err != nil {
			t.Fatal(err)
		}
		rules := []Rule{rule}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			inventory.Snapshot() // so that pages are changed and not only laid out
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				c := drawCluster(t, fmt.Sprintf("cluster-%03d", rapid.IntRange(0, 50).Draw(t, "which")))
				fleet = slices.DeleteFunc(fleet, func(other *Cluster) bool { return other.Name == c.Name })
				fleet = append(fleet, c)
				inventory.UpsertCluster(c)
			case 1:
				name := fmt.Sprintf("cluster-%03d", rapid.IntRange(0, 50).Draw(t, "which"))
				fleet = slices.DeleteFunc(fleet, func(other *Cluster) bool { return other.Name == name })
				inventory.DeleteCluster(name)
			case 2:
				instance := rapid.StringMatching(`si-[ab]`).Draw(t, "instance")
				inventory.Release(instance)
				delete(held, instance)
			default:
				r := drawRequest(t, nil)
				r.Rules = rules // what it says of a cluster is kept with the page
				if _, placed := held[r.ID]; placed {
					continue
				}
				if d, err := inventory.Place(r); err == nil {
					held[r.ID] = map[string]Resources{}
					for _, p := range d.Placements {
						held[r.ID][p.Cluster] = p.Reserved
					}
				}
			}
		}
		fresh := stock(fleet)
		for instance, clusters := range held {
			fresh.Reserve(Holding{Instance: instance, Held: clusters})
		}
		r := drawRequest(t, fleet)
		r.Rules = rules
		if got, want := Explain(r, inventory.Snapshot()), Explain(r, fresh.Snapshot()); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestConcurrentPlacementsNeverExceedCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fleet := make([]*Cluster, rapid.IntRange(1, 5).Draw(t, "clusters"))
		for i := range fleet {
			fleet[i] = &Cluster{
				Name: fmt.Sprintf("cluster-%d", i), Ready: true, AccessVerified: true,
				Allocatable: Resources{corev1.ResourceCPU: rapid.Int64Range(0, 10).Draw(t, "cpu")},
				ForeignUse:  Resources{corev1.ResourceCPU: rapid.Int64Range(0, 3).Draw(t, "foreign")},
			}
		}
		inventory := stock(fleet)
		var racing sync.WaitGroup
		for i := range 16 {
			racing.Go(func() {
				id := fmt.Sprintf("si-%d", i)
				_, err := inventory.Place(Request{ID: id, Resources: Resources{corev1.ResourceCPU: int64(i%3 + 1)}})
				if err == nil && i%4 == 0 {
					inventory.Release(id)
				}
			})
		}
		racing.Wait()
		audit(t, inventory, fleet)
		_, err := inventory.Place(Request{ID: "si-last", Resources: Resources{corev1.ResourceCPU: 1}})
		s := inventory.Snapshot()
		roomiest := slices.MaxFunc(fleet, func(a, b *Cluster) int {
			return cmp.Compare(s.Free(a.Name, corev1.ResourceCPU), s.Free(b.Name, corev1.ResourceCPU))
		})
		if err != nil && s.Free(roomiest.Name, corev1.ResourceCPU) > 0 {
			t.Fatalf("one is free on %s, and Place says %v", roomiest.Name, err)
		}
	})
}

// audit adds up the reservations independently.
func audit(t interface{ Fatalf(string, ...any) }, inventory *Inventory, fleet []*Cluster) {
	s := inventory.Snapshot()
	for _, c := range fleet {
		var reserved int64
		for _, held := range s.Reservations(c.Name) {
			reserved += held.Resources[corev1.ResourceCPU]
		}
		room := c.Unreserved(corev1.ResourceCPU)
		if reserved > 0 && reserved > room {
			t.Fatalf("%d of %d are reserved on %s", reserved, room, c.Name)
		}
		if free := s.Free(c.Name, corev1.ResourceCPU); free != room-reserved {
			t.Fatalf("%d of %d are reserved on %s, and %d are free", reserved, room, c.Name, free)
		}
	}
}
