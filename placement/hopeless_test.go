package placement

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Requests that can be placed only after a change by an operator are distinguished from those
// that can be placed when capacity becomes free, or clusters answer again or take new
// placements.
func TestHopeless(t *testing.T) {
	cores := func(n int64) Resources { return Resources{corev1.ResourceCPU: n * 1000} }
	in := func(region string) func(*Request) {
		return func(r *Request) { r.Selector = labels.SelectorFromSet(labels.Set{v1alpha1.LabelRegion: region}) }
	}
	claim := func(name, value string, assurance v1alpha1.Assurance) func(*Request) {
		return func(r *Request) {
			rule, err := CompileRule("plan", "", v1alpha1.PolicyRule{Name: "rule", Claim: &v1alpha1.ClaimRule{Name: name, Values: []string{value}, Assurance: assurance}})
			if err != nil {
				t.Fatal(err)
			}
			r.Rules = []Rule{rule}
		}
	}
	elastic := func(region string) Policies {
		return Policies{{Name: "grow", Elastic: &v1alpha1.Elastic{Member: v1alpha1.MemberTemplate{Region: region}}}}
	}
	priced := elastic("eu")
	priced[0].Elastic.Member.Prices = &v1alpha1.PriceList{Currency: "EUR", PerHour: cores(1).List()}
	for i := range 20 { // which no cluster has
		priced[0].Elastic.Member.Prices.PerHour[corev1.ResourceName(fmt.Sprint("example.com/kind-", i))] = resource.MustParse("1")
	}
	costing := func(most int64) func(*Request) {
		return func(r *Request) { r.MaxPrice = &Price{"EUR", most} }
	}
	eu := func(change func(*Cluster)) *Cluster {
		c := &Cluster{
			Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8), Region: "eu", Provider: "acme",
			Labels: labels.Set{v1alpha1.LabelRegion: "eu", v1alpha1.LabelProvider: "acme", v1alpha1.LabelTier: "cloud"},
			Claims: []v1alpha1.Claim{{Name: v1alpha1.ClaimDatacenterCountry, Value: "DE", Assurance: v1alpha1.AssuranceNotary}},
		}
		if change != nil {
			change(c)
		}
		return c
	}
	for name, row := range map[string]struct {
		cluster  func(*Cluster)
		request  func(*Request)
		policies Policies
		others   []*Cluster
		hopeless bool
	}{
		"the cluster is full":                        {cluster: func(c *Cluster) { c.ForeignUse = cores(8) }},
		"the cluster does not answer":                {cluster: func(c *Cluster) { c.Ready = false }},
		"it has never answered":                      {cluster: func(c *Cluster) { c.Ready, c.Allocatable = false, nil }},
		"it answers, and has not said what it has":   {cluster: func(c *Cluster) { c.Allocatable = nil }},
		"no node has room for its pod":               {cluster: func(c *Cluster) { c.Holes = HolesOf([]Resources{cores(1)}) }, request: func(r *Request) { r.LargestPods = []Resources{cores(2)} }},
		"it is cordoned":                             {cluster: func(c *Cluster) { c.Cordoned = true }},
		"it lacks access":                            {cluster: func(c *Cluster) { c.AccessVerified = false }},
		"it has a taint":                             {cluster: func(c *Cluster) { c.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }},
		"its latency is not known":                   {request: func(r *Request) { r.MaxLatency = &v1alpha1.LatencyBound{Milliseconds: 5} }},
		"it has proven nothing yet":                  {cluster: func(c *Cluster) { c.Unproven, c.Claims = "nothing yet", nil }, request: claim(v1alpha1.ClaimDatacenterCountry, "DE", "")},
		"what is measured is too little":             {request: claim(v1alpha1.ClaimUptime, "1", v1alpha1.AssuranceMeasured)},
		"the quota is used up":                       {policies: Policies{{Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: cores(4).List()}}}},
		"the quota is less than is asked for":        {policies: Policies{{Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: cores(1).List()}}}, hopeless: true},
		"there is no such region":                    {request: in("mars"), hopeless: true},
		"nobody is of that tier":                     {request: func(r *Request) { r.Tier = v1alpha1.TierEdge }, hopeless: true},
		"nobody else provides":                       {request: func(r *Request) { r.ExcludeProviders = []string{"acme"} }, hopeless: true},
		"nobody has proven that":                     {request: claim(v1alpha1.ClaimDatacenterCountry, "US", "")},
		"nobody has a price":                         {request: func(r *Request) { r.MaxPrice = &Price{"EUR", 1} }, hopeless: true},
		"it is more than the cluster has":            {request: func(r *Request) { r.Resources = cores(9) }, hopeless: true},
		"it is more replicas than the cluster takes": {request: func(r *Request) { r.Replicas = 5 }, hopeless: true},
		"it is more clusters than there are":         {request: func(r *Request) { r.Clusters = 2 }, hopeless: true},
		"it is more groups than there are": {request: func(r *Request) {
			r.Clusters, r.Spread = 2, &Spread{By: []string{v1alpha1.LabelRegion}}
		}, hopeless: true},
		"a component is too large": {request: func(r *Request) { r.Components = []Component{{Name: "a", Resources: cores(9)}} }, hopeless: true},
		"the components are too large together": {request: func(r *Request) {
			r.Components = []Component{{Name: "a", Resources: cores(5)}, {Name: "b", Resources: cores(5)}}
		}, hopeless: true},
		"how far two components are apart is not known": {request: func(r *Request) {
			r.Components = []Component{{Name: "a", Resources: cores(5)}, {Name: "b", Resources: cores(4)}}
			r.Links = []Link{{Between: [2]int{0, 1}, Most: time.Millisecond}}
		}, others: []*Cluster{{Name: "us", Ready: true, AccessVerified: true, Allocatable: cores(5)}}},
		"a component waits for room": {cluster: func(c *Cluster) { c.ForeignUse = cores(8) }, request: func(r *Request) {
			r.Components = []Component{{Name: "a", Resources: cores(5)}}
		}},
		"the plan waits for anything":                {request: func(r *Request) { in("mars")(r); r.WaitFor = v1alpha1.WaitForAnything }},
		"a cluster may be made there":                {request: in("mars"), policies: elastic("mars")},
		"another policy than the first may make one": {request: in("mars"), policies: append(Policies{{}}, elastic("mars")...)},
		"one may be made, and elsewhere":             {request: in("mars"), policies: elastic("eu"), hopeless: true},
		"one may be made, and costs no more":         {request: costing(2e9), policies: priced},
		"one may be made, and costs too much":        {request: costing(2e9 - 1), policies: priced, hopeless: true},
		"one of any size may be made":                {request: func(r *Request) { r.Resources = cores(9) }, policies: elastic("eu")},
		"Sluice itself waits, who asks for such":     {request: func(r *Request) { in("mars")(r); r.Consumer.Platform = v1alpha1.PlatformSelf }},
		"one may be made that can be peered":         {request: func(r *Request) { r.Peering = &Peering{} }, policies: elastic("eu")},
		"the consumer has no cluster of its own":     {request: func(r *Request) { r.Peering = &Peering{} }, hopeless: true},
		"the operator's rule allows no cluster":      {policies: Policies{{Rules: []Rule{{By: "policy none", Name: "none", broken: "does not compile"}}}}},
		"others of its application must be apart": {request: func(r *Request) {
			r.Affinity = []v1alpha1.Affinity{{With: v1alpha1.ScopeSpace, By: v1alpha1.LabelRegion, Apart: true}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := stock(append(row.others, eu(row.cluster)))
			inventory.SetPolicies(row.policies)
			consumer := Consumer{Platform: "cf", Space: "s1"}
			inventory.Reserve(Holding{Instance: "si-other", Consumer: consumer, Held: map[string]Resources{"eu": cores(4)}})
			r := Request{ID: "si-new", Resources: cores(2), Consumer: consumer}
			if row.request != nil {
				row.request(&r)
			}
			platform := r.Consumer.Platform
			consumer.Platform = platform
			r = inventory.Snapshot().Govern(r, consumer)
			if got := Hopeless(r, inventory.Snapshot()); got != row.hopeless {
				t.Errorf("hopeless is %t", got)
			}
		})
	}
}

// A refused update is in vain where the instance has to stay, unless others make room there.
func TestHopelessHere(t *testing.T) {
	s := stock([]*Cluster{
		{Name: "eu", Ready: true, AccessVerified: true, Allocatable: cores(8), ForeignUse: cores(6)},
		{Name: "us", Ready: true, AccessVerified: true, Allocatable: cores(32)},
	}).Snapshot()
	for n, want := range map[int64]bool{7: false, 9: true} {
		r := Request{ID: "si", Resources: cores(n), Current: []string{"eu"}}
		if got := HopelessHere(r, s); got != want {
			t.Errorf("%d cores: %t", n, got)
		}
		if r.WaitFor = v1alpha1.WaitForAnything; HopelessHere(r, s) {
			t.Errorf("%d cores, waiting for anything: it is in vain", n)
		}
	}
}
