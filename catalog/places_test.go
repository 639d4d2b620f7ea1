package catalog

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestPlaces: where a plan's instances can be follows from its selector and its kind, whatever the state of clusters.
func TestPlaces(t *testing.T) {
	cluster := func(name, driver, provider, region string) v1alpha1.MemberCluster {
		return v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MemberClusterSpec{Driver: driver, Provider: provider, Region: region}}
	}
	gone := cluster("gone", "", "gone", "eu-9")
	gone.DeletionTimestamp = &metav1.Time{}
	consumers := cluster("own", v1alpha1.DriverLiqo, "consumer", "eu-8")
	consumers.Spec.Consumers = []v1alpha1.ConsumerReference{{Platform: "cf"}}
	clusters := []v1alpha1.MemberCluster{
		consumers, cluster("a", "", "acme", "eu-1"), cluster("b", "", "rival", "eu-1"), cluster("c", "", "", "us-1"), gone,
		cluster("d", v1alpha1.DriverCAPI, "maker", "eu-2"), cluster("e", v1alpha1.DriverOSB, "seller", "eu-3"), cluster("f", v1alpha1.DriverOSB, "another", "us-3"),
		cluster("p", v1alpha1.DriverPool, "exchange", "eu-4"),
	}
	of := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	upstream := &v1alpha1.UpstreamPlan{Candidates: []v1alpha1.UpstreamCandidate{{Broker: "e"}, {Broker: "a"}}}
	plans := map[string]v1alpha1.Plan{
		"any":      {Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{}},
		"acme":     {Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Selector: of(v1alpha1.LabelProvider, "acme")}},
		"region":   {Kind: v1alpha1.PlanKindWorkload, Resources: &v1alpha1.ResourcesPlan{Selector: of("topology.kubernetes.io/region", "eu-1")}},
		"opaque":   {Kind: v1alpha1.PlanKindResources, Resources: &v1alpha1.ResourcesPlan{Peering: &v1alpha1.PeeringPlan{Role: v1alpha1.RoleOpaque}}},
		"cluster":  {Kind: v1alpha1.PlanKindCluster, Cluster: &v1alpha1.ClusterPlan{}},
		"upstream": {Kind: v1alpha1.PlanKindUpstream, Upstream: upstream},
	}
	s := newSnapshot(nil, nil)
	for id, plan := range plans {
		s.plans[id] = &Plan{Plan: plan}
	}
	if s.Places("any") != nil {
		t.Error("places are known before the clusters are")
	}
	s.locate(clusters)
	for id, want := range map[string]Places{
		"any": {[]string{"acme", "rival"}, []string{"eu-1", "us-1"}}, "acme": {[]string{"acme"}, []string{"eu-1"}}, "region": {[]string{"acme", "rival"}, []string{"eu-1"}},
		"opaque":  {[]string{"exchange"}, []string{"eu-4"}},
		"cluster": {[]string{"maker"}, []string{"eu-2"}}, "upstream": {[]string{"acme", "seller"}, []string{"eu-1", "eu-3"}},
	} {
		if got := s.Places(id); got == nil || !slices.Equal(got.Providers, want.Providers) || !slices.Equal(got.Regions, want.Regions) {
			t.Errorf("%s: got %v, want %v", id, got, want)
		}
	}
}

// TestAReplacedCatalogIsAnnounced: to everybody who waits for it.
func TestAReplacedCatalogIsAnnounced(t *testing.T) {
	c := &Catalog{}
	first, second := c.Changed(), c.Changed()
	select {
	case <-first:
		t.Fatal("nothing has changed")
	default:
	}
	c.Replace(newSnapshot(nil, nil))
	for _, changed := range []<-chan struct{}{first, second} {
		select {
		case <-changed:
		default:
			t.Error("the change is not announced")
		}
	}
	select {
	case <-c.Changed():
		t.Error("it is announced twice")
	default:
	}
}
