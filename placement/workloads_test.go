package placement

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// TestRulesForWorkloads: a decision has the rules of all policies that concern the request and its cluster. An order
// whose pods they refuse is not placed there, with the reason, and does not wait for it.
func TestRulesForWorkloads(t *testing.T) {
	ours := v1alpha1.WorkloadRules{Registries: []string{"registry.example/team"}}
	digests := v1alpha1.WorkloadRules{Digests: true}
	policy := func(name, provider string, rules v1alpha1.WorkloadRules, plans ...string) v1alpha1.PlacementPolicy {
		return v1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementPolicySpec{
			Provider: provider, Match: v1alpha1.PolicyMatch{Plans: plans}, Workloads: &rules,
		}}
	}
	pod := func(component, image string) catalog.Pod {
		return catalog.Pod{Component: component, Images: []string{image}}
	}
	components := []Component{{Name: "a", Resources: Resources{"cpu": 1}}, {Name: "b", Resources: Resources{"cpu": 1}}}
	const refusal = "none of 2 clusters fits: PodsRefused on 2 (a: policy images, workloads: images come only from registry.example/team: docker.io/library/nginx is refused)"
	for name, row := range map[string]struct {
		policies []v1alpha1.PlacementPolicy
		request  Request
		want     map[string][]v1alpha1.WorkloadRules
		says     string
		consumer string
	}{
		"no policy":                 {nil, Request{Clusters: 2}, map[string][]v1alpha1.WorkloadRules{"a": nil, "b": nil}, "", ""},
		"pods that are not known":   {[]v1alpha1.PlacementPolicy{policy("images", "", ours)}, Request{Clusters: 2}, map[string][]v1alpha1.WorkloadRules{"a": {ours}, "b": {ours}}, "", ""},
		"a policy of another plan":  {[]v1alpha1.PlacementPolicy{policy("images", "", ours, "other")}, Request{Clusters: 2}, map[string][]v1alpha1.WorkloadRules{"a": nil, "b": nil}, "", ""},
		"policies of two providers": {[]v1alpha1.PlacementPolicy{policy("a.images", "pa", ours), policy("b.digests", "pb", digests)}, Request{Clusters: 2}, map[string][]v1alpha1.WorkloadRules{"a": {ours}, "b": {digests}}, "", ""},
		"operator and provider, and the same rules again": {
			[]v1alpha1.PlacementPolicy{policy("a.images", "pa", ours), policy("digests", "", digests), policy("same", "", ours)},
			Request{Clusters: 2}, map[string][]v1alpha1.WorkloadRules{"a": {ours, digests}, "b": {digests, ours}}, "", "",
		},
		"pods that are allowed": {[]v1alpha1.PlacementPolicy{policy("images", "", ours)}, Request{Clusters: 2, Pods: []catalog.Pod{pod("", "registry.example/team/app:1")}},
			map[string][]v1alpha1.WorkloadRules{"a": {ours}, "b": {ours}}, "", ""},
		"pods that are refused by one provider": {[]v1alpha1.PlacementPolicy{policy("a.images", "pa", ours)}, Request{Pods: []catalog.Pod{pod("", "nginx")}},
			map[string][]v1alpha1.WorkloadRules{"b": nil}, "", ""},
		"pods that are refused": {[]v1alpha1.PlacementPolicy{policy("images", "", ours)}, Request{Pods: []catalog.Pod{pod("", "registry.example/team/app"), pod("", "nginx")}},
			nil, refusal, "nothing on offer fits at the moment: PodsRefused (images come only from registries that were agreed)"},
		"components, of which one is refused by one provider": {[]v1alpha1.PlacementPolicy{policy("a.images", "pa", ours)},
			Request{Components: components, Pods: []catalog.Pod{pod("a", "registry.example/team/app"), pod("b", "nginx")}},
			map[string][]v1alpha1.WorkloadRules{"a": {ours}, "b": nil}, "", ""},
		"an update where it stays": {[]v1alpha1.PlacementPolicy{policy("images", "", ours)}, Request{Current: []string{"b"}, Pods: []catalog.Pod{pod("", "nginx")}},
			nil, "the instance stays on its clusters, and b cannot take the change: PodsRefused (policy images, workloads: images come only from registry.example/team: docker.io/library/nginx is refused)",
			"the instance stays on its clusters, and they cannot take the change: PodsRefused"},
		"a move, where it stays": {[]v1alpha1.PlacementPolicy{policy("b.images", "pb", ours)},
			Request{Clusters: 2, Current: []string{"b"}, Sold: map[string][]v1alpha1.WorkloadRules{"b": {digests}}, Pods: []catalog.Pod{pod("", "nginx")}},
			map[string][]v1alpha1.WorkloadRules{"a": nil, "b": {digests}}, "", ""},
		"a whole cluster": {[]v1alpha1.PlacementPolicy{policy("images", "", ours)}, Request{Shape: &v1alpha1.ClusterShape{}}, map[string][]v1alpha1.WorkloadRules{"m": nil}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inv := NewInventory()
			inv.SetPolicies(CompilePolicies(row.policies))
			for _, one := range []struct{ name, driver string }{{"a", v1alpha1.DriverKube}, {"b", v1alpha1.DriverKube}, {"m", v1alpha1.DriverCAPI}} {
				if (one.driver == v1alpha1.DriverCAPI) != (row.request.Shape != nil) {
					continue
				}
				c := ClusterOf(&v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: one.name}, Spec: v1alpha1.MemberClusterSpec{Driver: one.driver, Provider: "p" + one.name}}, row.request.At)
				c.Ready, c.AccessVerified, c.Unguarded, c.Allocatable = true, true, "", Resources{"cpu": 10}
				inv.UpsertCluster(c)
			}
			r := row.request
			r.ID = "si-1"
			if len(r.Components) == 0 {
				r.Resources = Resources{"cpu": 1}
			}
			r.Consumer.Plan = "plan"
			r = inv.Snapshot().Govern(r, Consumer{Platform: "cf"})
			d, err := Place(r, inv.Snapshot())
			if row.says != "" {
				none, ok := AsUnplaceable(err)
				if !ok || none.Error() != row.says || none.ForConsumer() != row.consumer {
					t.Fatalf("got %v, %q, want %s, %q", err, none.ForConsumer(), row.says, row.consumer)
				}
				if !Hopeless(r, inv.Snapshot()) {
					t.Error("it waits, and no change of a cluster would help it")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]v1alpha1.WorkloadRules{}
			for _, p := range d.API(1).Placements {
				got[p.Cluster] = p.Workloads
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestUnguardedClusters: orders with rules go only to clusters that would enforce them, and wait for one. An instance that
// is on another one stays there.
func TestUnguardedClusters(t *testing.T) {
	rules := v1alpha1.WorkloadRules{Digests: true}
	for name, row := range map[string]struct {
		driver, provider, enforced string
		request                    Request
		says                       string
	}{
		"it has not said so yet":    {driver: v1alpha1.DriverKube, says: "RulesNotEnforced on 1 (a: not probed yet)"},
		"it enforces them":          {driver: v1alpha1.DriverKube, enforced: "yes"},
		"it does not":               {driver: v1alpha1.DriverLiqo, enforced: "no", says: "RulesNotEnforced on 1 (a: no policy)"},
		"rules of another provider": {driver: v1alpha1.DriverKube, provider: "pb"},
		"an instance that is there": {driver: v1alpha1.DriverKube, request: Request{Current: []string{"a"}}},
		"a cluster for whole ones":  {driver: v1alpha1.DriverCAPI, request: Request{Shape: &v1alpha1.ClusterShape{}}},
	} {
		t.Run(name, func(t *testing.T) {
			inv := NewInventory()
			inv.SetPolicies(CompilePolicies([]v1alpha1.PlacementPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "digests"}, Spec: v1alpha1.PlacementPolicySpec{Provider: row.provider, Workloads: &rules}}}))
			mc := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.MemberClusterSpec{Driver: row.driver, Provider: "pa"}}
			if row.enforced != "" {
				status := map[string]metav1.ConditionStatus{"yes": metav1.ConditionTrue, "no": metav1.ConditionFalse}[row.enforced]
				v1alpha1.SetCondition(&mc.Status.Conditions, 1, v1alpha1.ConditionRulesEnforced, status, "Test", "no policy")
			}
			c := ClusterOf(mc, row.request.At)
			c.Ready, c.AccessVerified, c.Allocatable = true, true, Resources{"cpu": 10}
			inv.UpsertCluster(c)
			r := row.request
			r.ID, r.Resources, r.Clusters = "si-1", Resources{"cpu": 1}, 1
			r = inv.Snapshot().Govern(r, Consumer{Platform: "cf"})
			_, err := Place(r, inv.Snapshot())
			if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("placed with %v, want %q", err, row.says)
			}
			if err != nil && Hopeless(r, inv.Snapshot()) {
				t.Error("it does not wait for a cluster that enforces them")
			}
		})
	}
}
