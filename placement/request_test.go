package placement

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// A plan or parameters that cannot be read are refused, and the message names the field.
func TestRequestsThatCannotBeReadAreRefused(t *testing.T) {
	wrong := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near"}}}
	rule := []v1alpha1.PolicyRule{{Name: "rule", Expression: "cluster."}}
	sells := func(plan v1alpha1.ResourcesPlan) v1alpha1.Plan {
		return v1alpha1.Plan{Name: "small", Kind: v1alpha1.PlanKindResources, Resources: &plan}
	}
	makes := func(plan v1alpha1.ClusterPlan) v1alpha1.Plan {
		return v1alpha1.Plan{Name: "small", Kind: v1alpha1.PlanKindCluster, Cluster: &plan}
	}
	for name, row := range map[string]struct {
		plan       v1alpha1.Plan
		parameters string
		names      string
	}{
		"no kind":              {plan: v1alpha1.Plan{Name: "small"}, names: "small sells no resources"},
		"the kind alone":       {plan: v1alpha1.Plan{Name: "small", Kind: v1alpha1.PlanKindResources}, names: "small sells no resources"},
		"its selector":         {plan: sells(v1alpha1.ResourcesPlan{Selector: wrong}), names: "selector of plan small"},
		"its rules":            {plan: sells(v1alpha1.ResourcesPlan{Require: rule}), names: "plan small: require"},
		"its spread":           {plan: sells(v1alpha1.ResourcesPlan{Spread: &v1alpha1.Spread{}}), names: "plan small: spread.by"},
		"its weights":          {plan: sells(v1alpha1.ResourcesPlan{Replicas: &v1alpha1.Replicas{Weights: []v1alpha1.ReplicaWeight{{Selector: *wrong}}}}), names: "plan small: replicas.weights[0]"},
		"its component":        {plan: sells(v1alpha1.ResourcesPlan{Components: []v1alpha1.Component{{Name: "db", Selector: wrong}}}), names: "component db: selector"},
		"its links":            {plan: sells(v1alpha1.ResourcesPlan{Components: []v1alpha1.Component{{Name: "db"}}, Links: []v1alpha1.Link{{Between: []string{"db", "web"}}}}), names: "there is no component web"},
		"parameters":           {plan: sells(v1alpha1.ResourcesPlan{}), parameters: `[]`, names: "parameters of plan small"},
		"a selector":           {plan: sells(v1alpha1.ResourcesPlan{}), parameters: `{"selector": {"region": "not a label"}}`, names: "parameter selector"},
		"a location":           {plan: sells(v1alpha1.ResourcesPlan{}), parameters: `{"location": {"latitude": 91, "longitude": 0}}`, names: "parameter location: latitude"},
		"a cluster's selector": {plan: makes(v1alpha1.ClusterPlan{MemberChoice: v1alpha1.MemberChoice{Selector: wrong}}), names: "selector of plan small"},
		"a cluster's rules":    {plan: makes(v1alpha1.ClusterPlan{MemberChoice: v1alpha1.MemberChoice{Require: rule}}), names: "plan small: require"},
		"a cluster's order":    {plan: makes(v1alpha1.ClusterPlan{}), parameters: `[]`, names: "parameters of plan small"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewRequest("si", &catalog.Plan{Plan: row.plan}, json.RawMessage(row.parameters))
			if err == nil || !strings.Contains(err.Error(), row.names) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// Each component asks for what it says, and for what the plan says where it says nothing.
func TestComponentsAskForThemselves(t *testing.T) {
	gpu := &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}
	plan := v1alpha1.ResourcesPlan{
		Limits:   cores(2).List(),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}},
		Tier:     v1alpha1.TierCloud,
		Components: []v1alpha1.Component{
			{Name: "web"}, {Name: "train", Limits: cores(8).List(), Selector: gpu, Tier: v1alpha1.TierEdge},
		},
	}
	r, err := NewRequest("si", &catalog.Plan{Plan: v1alpha1.Plan{Kind: v1alpha1.PlanKindResources, Resources: &plan}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.ComponentClusters = map[string]string{"train": "eu-1"}
	web, train := r.of(&r.Components[0]), r.of(&r.Components[1])
	for name, row := range map[string]struct {
		got      Request
		cores    int64
		tier     v1alpha1.Tier
		takes    map[string]bool // by the labels of a cluster
		currents []string
	}{
		"web":   {got: web, cores: 2, tier: v1alpha1.TierCloud, takes: map[string]bool{"region=eu": true, "region=us": false}},
		"train": {got: train, cores: 8, tier: v1alpha1.TierEdge, takes: map[string]bool{"region=eu": false, "gpu=yes": false, "gpu=yes,region=eu": true}, currents: []string{"eu-1"}},
	} {
		if row.got.Resources[corev1.ResourceCPU] != row.cores*1000 || row.got.Tier != row.tier || !slices.Equal(row.got.Current, row.currents) {
			t.Errorf("%s: %+v", name, row.got)
		}
		for of, takes := range row.takes {
			set, err := labels.ConvertSelectorToLabelsMap(of)
			if err != nil {
				t.Fatal(err)
			}
			if row.got.Selector.Matches(set) != takes {
				t.Errorf("%s: a cluster with %s is taken: %t", name, of, !takes)
			}
		}
	}
}

// Policies add to a request, whoever it is for; the request's plan and application stay its own.
func TestGovern(t *testing.T) {
	for name, row := range map[string]struct {
		of, asked Consumer
		want      Consumer
	}{
		"the platform's":             {of: Consumer{Platform: "cf", Space: "s", Plan: "other"}, asked: Consumer{Plan: "small"}, want: Consumer{Platform: "cf", Space: "s", Plan: "small"}},
		"the order's application":    {of: Consumer{Platform: "cf"}, asked: Consumer{Application: "shop"}, want: Consumer{Platform: "cf", Application: "shop"}},
		"the instance's application": {of: Consumer{Platform: "cf", Application: "shop"}, asked: Consumer{Application: "stall"}, want: Consumer{Platform: "cf", Application: "shop"}},
	} {
		if got := (Policies{}).Govern(Request{Consumer: row.asked}, row.of).Consumer; got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
	ps := CompilePolicies([]v1alpha1.PlacementPolicy{
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.PlacementPolicySpec{Match: v1alpha1.PolicyMatch{Spaces: []string{"s"}}, Quota: &v1alpha1.Quota{Per: v1alpha1.ScopeSpace, Limits: cores(1).List()}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.PlacementPolicySpec{Quota: &v1alpha1.Quota{Per: v1alpha1.ScopePlatform, Limits: cores(2).List()}}},
	})
	for space, want := range map[string][]string{"s": {"policy a", "policy b"}, "t": {"policy a"}} {
		var by []string
		for _, q := range ps.Govern(Request{}, Consumer{Platform: "cf", Space: space}).Quotas {
			by = append(by, q.By)
		}
		if !slices.Equal(by, want) {
			t.Errorf("in space %s the quotas are of %v, want %v", space, by, want)
		}
	}
}

// A cluster that a policy makes has the policy's labels and its own, and the policy keeps its.
func TestMemberOfAPolicy(t *testing.T) {
	for name, given := range map[string]map[string]string{"with labels": {"gpu": "yes"}, "without": nil} {
		p := &Policy{Name: "grow", Elastic: &v1alpha1.Elastic{Member: v1alpha1.MemberTemplate{Labels: given, Region: "eu"}}}
		mc := p.Member(&v1alpha1.ClusterPlan{})
		if mc.Labels[v1alpha1.LabelElastic] != "grow" || mc.Labels["gpu"] != given["gpu"] || mc.Region != "eu" || mc.Side() != v1alpha1.SideProvider {
			t.Errorf("%s: %+v", name, mc)
		}
		if _, changed := given[v1alpha1.LabelElastic]; changed {
			t.Errorf("%s: the policy itself has changed", name)
		}
	}
}

// What the consumer reads has no cluster and no number in it.
func TestForConsumer(t *testing.T) {
	rejected := Decision{Considered: 2, Rejections: []Rejection{{Reason: ReasonFits}, {Reason: "InsufficientMemory"}, {Reason: "InsufficientCPU"}}}
	for want, e := range map[string]UnplaceableError{
		"nothing is on offer at the moment":                                        {},
		"nothing on offer fits at the moment: InsufficientCPU, InsufficientMemory": {Decision: rejected, Found: 1},
		"too much": {Denied: true, Why: "too much", Decision: rejected},
		"the instance stays on its clusters, and they cannot take the change: InsufficientCPU": {
			Decision: rejected, Lost: []Example{{"eu-1", "InsufficientCPU 3 of 4"}, {"eu-2", "InsufficientCPU 2 of 4"}}},
	} {
		if got := e.ForConsumer(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestResourcesAreNamedInOneOrder(t *testing.T) {
	r := Resources{"pods": 1, "nvidia.com/gpu": 1, corev1.ResourceMemory: 1, "a.example/chip": 1, corev1.ResourceCPU: 1}
	want := []corev1.ResourceName{"cpu", "memory", "a.example/chip", "nvidia.com/gpu", "pods"}
	for range 20 { // maps have no order
		if got := r.names(); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
}

// A workload that is divided takes its share on each cluster, and once what does not depend on it: the
// cache, and the pods that rollouts add. A replica more is another pod, at its price.
func TestASharesAmountsAreComputed(t *testing.T) {
	plan := v1alpha1.Plan{ID: "plan", Name: "plan", Kind: v1alpha1.PlanKindWorkload, Resources: &v1alpha1.ResourcesPlan{
		Clusters: 2, Replicas: &v1alpha1.Replicas{Count: 5, Max: 8, Divide: v1alpha1.DivideEvenly},
	}}
	err := yaml.UnmarshalStrict([]byte(`
components:
- {name: web, container: {image: web, replicas: "${cluster.replicas}", resources: {cpu: 1, memory: 1Gi}}}
- {name: cache, container: {image: cache, resources: {cpu: 2, memory: 1Gi}}}
`), &plan.Workload)
	if err != nil {
		t.Fatal(err)
	}
	r := requestRow{ID: "si"}.ofPlan(t, plan)
	if r.Resources[corev1.ResourceCPU] != 1000 || r.Common[corev1.ResourceCPU] != 1000+2*2000 || r.Replicas != 5 {
		t.Fatalf("%d replicas of %v, and %v on each cluster", r.Replicas, r.Resources, r.Common)
	}
	priced := func(name string) *Cluster {
		return &Cluster{Name: name, Allocatable: ResourcesOf(placementtest.Quantities("cpu=16,memory=64Gi,pods=100")), Ready: true, AccessVerified: true,
			Currency: "EUR", Prices: map[corev1.ResourceName]int64{corev1.ResourceCPU: 1000}}
	}
	d, err := stock([]*Cluster{priced("a"), priced("b")}).Place(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Placements {
		cpu := 5000 + 1000*int64(p.Replicas)
		if p.Reserved[corev1.ResourceCPU] != cpu || p.Price.NanoPerHour != cpu || p.Replicas < 2 {
			t.Errorf("%d replicas reserve %v for %v", p.Replicas, p.Reserved, p.Price)
		}
	}
	if d.Placements[0].Replicas+d.Placements[1].Replicas != 5 || r.total(2)[corev1.ResourceCPU] != 15000 {
		t.Errorf("%v, %v", d.Placements, r.total(2))
	}
}

// Each component of a workload asks for what it takes: its pods, volumes and public ports. One with a volume stays where
// that is. Linked components talk to each other.
func TestComponentsOfAWorkloadAskForWhatTheyTake(t *testing.T) {
	plan := v1alpha1.Plan{ID: "plan", Name: "plan", Kind: v1alpha1.PlanKindWorkload, Resources: &v1alpha1.ResourcesPlan{
		Components: []v1alpha1.Component{{Name: "web"}, {Name: "db", Tier: v1alpha1.TierCloud}, {Name: "mqtt"}},
		Links:      []v1alpha1.Link{{Between: []string{"web", "db"}}},
	}}
	err := yaml.UnmarshalStrict([]byte(`
components:
- {name: web, container: {image: web, resources: {cpu: 1, memory: 1Gi}}, ports: [{name: http, port: 80, reach: public, host: shop}]}
- {name: db, container: {image: db, resources: {cpu: 2, memory: 3Gi}, volumes: [{name: data, mountPath: /data, storageClass: fast, size: 5Gi}]}}
- {name: mqtt, container: {image: mqtt, resources: {cpu: 1, memory: 1Gi}}, ports: [{name: mqtt, port: 1883, reach: public, appProtocol: tcp}]}
`), &plan.Workload)
	if err != nil {
		t.Fatal(err)
	}
	r := requestRow{ID: "si"}.ofPlan(t, plan)
	if len(r.Components) != 3 || len(r.Links) != 1 || r.Links[0] != (Link{Between: [2]int{0, 1}, Most: AnyLatency, Connects: true}) {
		t.Fatalf("it asks for %+v with the links %+v", r.Components, r.Links)
	}
	for i, want := range []struct {
		memory, storage, ports int64
		public                 []v1alpha1.AppProtocol
		host                   string
		moves                  bool
	}{
		{memory: 1, public: []v1alpha1.AppProtocol{v1alpha1.AppProtocolHTTP}, host: "shop", moves: true},
		{memory: 3, storage: 5},
		{memory: 1, ports: 1, public: []v1alpha1.AppProtocol{v1alpha1.AppProtocolTCP}, moves: true},
	} {
		c := &r.Components[i]
		if len(c.LargestPods) != 1 || c.LargestPods[0][corev1.ResourceMemory] != want.memory<<30 || c.Resources[corev1.ResourceMemory] < want.memory<<30 {
			t.Errorf("%s takes %v with the pods %v", c.Name, c.Resources, c.LargestPods)
		}
		if c.Resources[v1alpha1.StorageResource("fast")] != want.storage<<30 || c.Resources[v1alpha1.ResourcePublicPorts] != want.ports || !slices.Equal(c.Public, want.public) {
			t.Errorf("%s takes %v, and is public by %v", c.Name, c.Resources, c.Public)
		}
		if _, asked := c.Hosts[want.host]; asked != (want.host != "") || c.Moves != want.moves {
			t.Errorf("%s asks for the hosts %v, and moves: %t", c.Name, c.Hosts, c.Moves)
		}
	}
}

// A plan that selects nothing takes every cluster, and each label that a consumer asks for narrows that.
func TestThePlanAndTheConsumerSelect(t *testing.T) {
	eu, us := labels.Set{"region": "eu", "gpu": "yes"}, labels.Set{"region": "us", "gpu": "yes"}
	for name, row := range map[string]struct {
		plan       *metav1.LabelSelector
		parameters string
		eu, us     bool
	}{
		"nobody selects":    {eu: true, us: true},
		"the plan":          {plan: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}, eu: true},
		"the consumer":      {parameters: `{"selector": {"region": "us"}}`, us: true},
		"both":              {plan: &metav1.LabelSelector{MatchLabels: map[string]string{"gpu": "yes"}}, parameters: `{"selector": {"region": "us"}}`, us: true},
		"both, differently": {plan: &metav1.LabelSelector{MatchLabels: map[string]string{"region": "eu"}}, parameters: `{"selector": {"region": "us"}}`},
	} {
		plan := v1alpha1.ResourcesPlan{Limits: cores(2).List(), Selector: row.plan, Selectable: []string{"region"}}
		r, err := NewRequest("si", &catalog.Plan{Plan: v1alpha1.Plan{Kind: v1alpha1.PlanKindResources, Resources: &plan}}, json.RawMessage(row.parameters))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Selector.Matches(eu) != row.eu || r.Selector.Matches(us) != row.us {
			t.Errorf("%s: %s selects eu: %t, us: %t", name, r.Selector, r.Selector.Matches(eu), r.Selector.Matches(us))
		}
	}
}
