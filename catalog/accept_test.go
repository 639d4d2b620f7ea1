package catalog

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Ids that an earlier version accepted stay, because they cannot change any more.
func TestIDsThatAreServedStay(t *testing.T) {
	id := func(o *v1alpha1.ServiceOffering) { o.Spec.Plans[0].ID = "a-id" }
	for name, offerings := range map[string][]v1alpha1.ServiceOffering{
		"a plan with its offering's id": {offering("a", id, served)}, "a plan with another offering's id": {offering("a", served), offering("b", id, served)},
	} {
		verdicts, err := judge(offerings, nil, nil, func() (Uses, error) { return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range verdicts {
			if !v.accepted {
				t.Errorf("%s: %s: %+v", name, offerings[i].Name, v)
			}
		}
	}
}

// costs are the monthly costs of a plan.
func costs(currency, amount string) func(*v1alpha1.Plan) {
	return func(p *v1alpha1.Plan) {
		p.Costs = []v1alpha1.Cost{{Unit: "MONTHLY", Amount: map[string]resource.Quantity{currency: resource.MustParse(amount)}}}
	}
}

func TestJudge(t *testing.T) {
	older := func(o *v1alpha1.ServiceOffering) {
		o.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	}
	named := func(resource string) edit { return func(o *v1alpha1.ServiceOffering) { o.ObjectMeta.Name = resource } }
	withoutLarge := func(o *v1alpha1.ServiceOffering) { o.Spec.Plans = o.Spec.Plans[:1] }
	first := func(change func(*v1alpha1.Plan)) edit {
		return func(o *v1alpha1.ServiceOffering) { change(&o.Spec.Plans[0]) }
	}
	resources := func(change func(*v1alpha1.ResourcesPlan)) edit {
		return first(func(p *v1alpha1.Plan) { change(p.Resources) })
	}
	uses := Uses{"a-id": {"a-large": 2}, "b-id": {"b-large": 1}}
	for name, row := range map[string]struct {
		offerings []v1alpha1.ServiceOffering
		reasons   []string // Ready for accepted
		message   string   // part of the first refusal
	}{
		"a valid one":            {[]v1alpha1.ServiceOffering{offering("a")}, []string{"Ready"}, ""},
		"two that do not clash":  {[]v1alpha1.ServiceOffering{offering("a"), offering("b")}, []string{"Ready", "Ready"}, ""},
		"an id twice, the older": {[]v1alpha1.ServiceOffering{offering("a", named("x")), offering("a", named("y"), older)}, []string{"Conflict", "Ready"}, "the id"},
		"an id twice, by name":   {[]v1alpha1.ServiceOffering{offering("a", named("y")), offering("a", named("x"))}, []string{"Conflict", "Ready"}, "the id"},
		"an id twice, the served one": {[]v1alpha1.ServiceOffering{offering("a", named("x"), older), offering("a", named("y"), served)},
			[]string{"Conflict", "Ready"}, "the id"},
		"a name twice": {[]v1alpha1.ServiceOffering{offering("a"), offering("b", func(o *v1alpha1.ServiceOffering) { o.Spec.Name = "a" })},
			[]string{"Ready", "Conflict"}, "the name"},
		"a plan of another offering": {[]v1alpha1.ServiceOffering{offering("a", served), offering("b", first(func(p *v1alpha1.Plan) { p.ID = "a-small" }))},
			[]string{"Ready", "Conflict"}, "plan b-small is taken by plan a-small"},
		"a plan with an offering's id": {[]v1alpha1.ServiceOffering{offering("a", served), offering("b", first(func(p *v1alpha1.Plan) { p.ID = "a-id" }))},
			[]string{"Ready", "Conflict"}, `the id "a-id" of plan b-small is taken by service offering a`},
		"an offering with a plan's id": {[]v1alpha1.ServiceOffering{offering("a", served), offering("b", func(o *v1alpha1.ServiceOffering) { o.Spec.ID = "a-large" })},
			[]string{"Ready", "Conflict"}, `the id "a-large" is taken by plan a-large of service offering a`},
		"a plan with its offering's id": {[]v1alpha1.ServiceOffering{offering("a", first(func(p *v1alpha1.Plan) { p.ID = "a-id" }))}, []string{"Invalid"}, `plans: the id "a-id" is the offering's`},
		"a plan of one being deleted": {[]v1alpha1.ServiceOffering{offering("a", served, deleted), offering("b", first(func(p *v1alpha1.Plan) { p.ID = "a-small" }))},
			[]string{"", "Conflict"}, "a-small"},
		"a plan moved while in use": {[]v1alpha1.ServiceOffering{
			offering("b", served, func(o *v1alpha1.ServiceOffering) { o.Spec.Plans = append(o.Spec.Plans, plan("a-large")) }),
			offering("a", served, withoutLarge),
		}, []string{"Conflict", "InUse"}, "a-large"},
		"a plan removed while in use": {[]v1alpha1.ServiceOffering{offering("a", served, withoutLarge)}, []string{"InUse"}, "2 instances use it"},
		"one instance":                {[]v1alpha1.ServiceOffering{offering("b", served, withoutLarge)}, []string{"InUse"}, "plan b-large (b-large) cannot be removed: 1 instance uses it"},
		"a plan removed, unused":      {[]v1alpha1.ServiceOffering{offering("c", served, withoutLarge)}, []string{"Ready"}, ""},
		"a plan renamed":              {[]v1alpha1.ServiceOffering{offering("a", served, first(func(p *v1alpha1.Plan) { p.Name = "tiny" }))}, []string{"Ready"}, ""},
		"a plan of another kind": {[]v1alpha1.ServiceOffering{offering("c", served, first(func(p *v1alpha1.Plan) { p.Kind, p.Resources = "workload", nil }))},
			[]string{"Invalid"}, "changes its kind from resources to workload"},
		"a broken schema": {[]v1alpha1.ServiceOffering{offering("a", schemas(`{"type":1}`, "", ""))}, []string{"Invalid"}, "instanceCreate of plan a-small"},
		"a broken selector": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
		}))}, []string{"Invalid"}, "selector"},
		"a broken selectable": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) { r.Selectable = []string{"a b"} }))}, []string{"Invalid"}, "selectable"},
		"too few clusters for their groups": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Clusters, r.Spread = 3, &v1alpha1.Spread{By: []string{"zone"}, Groups: 2, MinPerGroup: 2}
		}))}, []string{"Invalid"}, "spread: 3 clusters are too few for 2 groups with at least 2 in each"},
		"more clusters than their groups may have": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Clusters, r.MaxClusters, r.Spread = 2, 5, &v1alpha1.Spread{By: []string{"zone"}, Groups: 2, MaxPerGroup: 2}
		}))}, []string{"Invalid"}, "spread: 5 clusters are too many for 2 groups with at most 2 in each"},
		"any number of clusters in enough groups": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Clusters, r.MaxClusters, r.Spread = 1, 64, &v1alpha1.Spread{By: []string{"zone"}, MinGroups: 3, MaxPerGroup: 2}
		}))}, []string{"Ready"}, ""},
		"less than nothing": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) { r.Limits["cpu"] = resource.MustParse("-1") }))}, []string{"Invalid"}, "cpu is negative"},
		"a misspelt resource": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) { r.Limits["mem"] = resource.MustParse("256Mi") }))}, []string{"Invalid"},
			`limits: "mem" is no resource: want cpu, memory,`},
		"a price of less than nothing": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			below := resource.MustParse("-1")
			r.MaxPrice = &v1alpha1.Price{Currency: "EUR", PerMonth: &below}
		}))}, []string{"Invalid"}, "maxPrice.perMonth: -1: want an amount of money"},
		"a cost": {[]v1alpha1.ServiceOffering{offering("a", first(costs("eur", "29.50")))}, []string{"Ready"}, ""},
		"a cost below nothing": {[]v1alpha1.ServiceOffering{offering("a", first(costs("eur", "-0.5")))}, []string{"Invalid"},
			"costs: eur: -500m: want an amount of money from 0 to 9223372036"},
		"a cost that cannot be counted": {[]v1alpha1.ServiceOffering{offering("a", first(costs("eur", "10G")))}, []string{"Invalid"},
			"costs: eur: 10G: want an amount of money from 0 to 9223372036"},
		"a cost in no currency": {[]v1alpha1.ServiceOffering{offering("a", first(costs("euro", "1")))}, []string{"Invalid"},
			`costs: "euro": want a currency as an ISO 4217 code`},
		"whole devices of a class": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Limits["large-gpu.deviceclass.resource.k8s.io/devices"] = resource.MustParse("2")
			r.LargestPod = corev1.ResourceList{"large-gpu.deviceclass.resource.k8s.io/devices": resource.MustParse("1")}
		}))}, []string{"Ready"}, ""},
		"half a device": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Limits["large-gpu.deviceclass.resource.k8s.io/devices"] = resource.MustParse("1500m")
		}))}, []string{"Invalid"}, "limits: large-gpu.deviceclass.resource.k8s.io/devices: 1500m is no whole number of devices"},
		"devices of no class": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Limits[".deviceclass.resource.k8s.io/devices"] = resource.MustParse("1")
		}))}, []string{"Invalid"}, "limits: .deviceclass.resource.k8s.io/devices: prefix part"},
		"devices of virtual nodes": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Limits["large-gpu.deviceclass.resource.k8s.io/devices"] = resource.MustParse("1")
			r.Peering = &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNode}
		}))}, []string{"Invalid"}, "devices of a class do not go with virtual nodes or hubs"},
		"devices of components, of a workload": {[]v1alpha1.ServiceOffering{offering("a", first(func(p *v1alpha1.Plan) {
			p.Kind, p.Workload = v1alpha1.PlanKindWorkload, &v1alpha1.WorkloadPlan{}
			p.Resources.Limits = corev1.ResourceList{"large-gpu.deviceclass.resource.k8s.io/devices": resource.MustParse("1")}
		}))}, []string{"Invalid"}, "do not go with kind: workload"},
		"a pod larger than the limits": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.LargestPod = corev1.ResourceList{"cpu": resource.MustParse("64")}
		}))}, []string{"Invalid"}, "largestPod: 64 cpu: is more than the limit of"},
		"a pod of pods": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.LargestPod = corev1.ResourceList{"pods": resource.MustParse("1")}
		}))}, []string{"Invalid"}, "largestPod: pods: is not a resource that a pod requests"},
		"a largest pod of components": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.MaxClusters, r.Components, r.LargestPod = 0, []v1alpha1.Component{{Name: "web"}}, corev1.ResourceList{"cpu": resource.MustParse("1m")}
		}))}, []string{"Invalid"}, "largestPod: cannot be combined with components"},
		"less storage than none": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Storage = map[string]resource.Quantity{"fast": resource.MustParse("-1")}
		}))}, []string{"Invalid"}, "fast is negative"},
		"components of more than one cluster": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.MaxClusters, r.Components = 2, []v1alpha1.Component{{Name: "web"}}
		}))}, []string{"Invalid"}, "cannot be combined with clusters"},
		"a link to no component": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.MaxClusters, r.Components, r.Links = 0, []v1alpha1.Component{{Name: "web"}}, []v1alpha1.Link{{Between: []string{"web", "db"}}}
		}))}, []string{"Invalid"}, "there is no component db"},
		"a link without a limit, of components that do not run": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.MaxClusters, r.Components, r.Links = 0, []v1alpha1.Component{{Name: "web"}, {Name: "db"}}, []v1alpha1.Link{{Between: []string{"web", "db"}}}
		}))}, []string{"Invalid"}, "links[0].maxMilliseconds: is missing"},
		"links without components": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Links = []v1alpha1.Link{{Between: []string{"web", "db"}}}
		}))}, []string{"Invalid"}, "links: cannot be used without components"},
		"a cluster plan with an even control plane": {[]v1alpha1.ServiceOffering{offering("a", first(func(p *v1alpha1.Plan) {
			p.Kind, p.Resources = v1alpha1.PlanKindCluster, nil
			p.Cluster = &v1alpha1.ClusterPlan{Roles: []string{"view"}, ControlPlane: &v1alpha1.Machines{Replicas: 2}}
		}))}, []string{"Invalid"}, "2 is even"},
		"a cluster plan with networks that are none": {[]v1alpha1.ServiceOffering{offering("a", first(func(p *v1alpha1.Plan) {
			p.Kind, p.Resources = v1alpha1.PlanKindCluster, nil
			p.Cluster = &v1alpha1.ClusterPlan{Roles: []string{"view"}, PodCIDRs: []string{"10.0.0.0"}}
		}))}, []string{"Invalid"}, "is no address range"},
		"a role of clusters for resources": {[]v1alpha1.ServiceOffering{offering("a", first(func(p *v1alpha1.Plan) { p.Credentials.Role = "cluster-admin" }))},
			[]string{"Invalid"}, "is for cluster plans"},
		"public ports of components": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Exposure, r.Components = &v1alpha1.PlanExposure{Hosts: 1}, []v1alpha1.Component{{Name: "web"}}
		}))}, []string{"Invalid"}, "exposure: does not go with components"},
		"public ports of virtual nodes": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Exposure, r.Peering = &v1alpha1.PlanExposure{Hosts: 1}, &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNode}
		}))}, []string{"Invalid"}, "exposure: does not go with virtual nodes or hubs"},
		"several clusters of pools": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.MaxClusters, r.Peering = 2, &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleOpaque}
		}))}, []string{"Invalid"}, "peering.role: Opaque: does not go with more than one of clusters or maxClusters: give the plan replicas"},
		"public ports of pools": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.MaxClusters, r.Exposure = 0, &v1alpha1.PlanExposure{Hosts: 1}
			r.Peering = &v1alpha1.PeeringPlan{Gives: v1alpha1.GivesNetwork, Role: v1alpha1.RoleOpaque}
		}))}, []string{"Invalid"}, "exposure: does not go with virtual nodes or hubs"},
		"a class that is none": {[]v1alpha1.ServiceOffering{offering("a", resources(func(r *v1alpha1.ResourcesPlan) {
			r.Storage = map[string]resource.Quantity{"a b": resource.MustParse("1")}
		}))}, []string{"Invalid"}, "class"},
	} {
		t.Run(name, func(t *testing.T) {
			// served copied the unchanged spec if a change follows it.
			for i := range row.offerings {
				if o := &row.offerings[i]; o.Status.Accepted != nil {
					before := offering(o.Spec.Name)
					o.Status.Accepted = &before.Spec
				}
			}
			verdicts, err := judge(row.offerings, nil, nil, func() (Uses, error) { return uses, nil })
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range row.reasons {
				v := verdicts[i]
				if v.reason != want || v.accepted != (want == "Ready") {
					t.Errorf("%s: %+v, want %s", row.offerings[i].Name, v, want)
				}
				if !v.accepted && want != "" {
					contains(t, v.message, row.message)
				}
			}
		})
	}
}

func TestJudgeCountsUsesOnlyWhenItMust(t *testing.T) {
	o := []v1alpha1.ServiceOffering{offering("a", served), offering("b")}
	if _, err := judge(o, nil, nil, func() (Uses, error) { return nil, errors.New("counted") }); err != nil {
		t.Error(err)
	}
	o[0].Spec.Plans = o[0].Spec.Plans[:1]
	if _, err := judge(o, nil, nil, func() (Uses, error) { return nil, errors.New("counted") }); err == nil {
		t.Error("a plan was removed without counting its uses")
	}
}

func TestUsesCountBothPlansOfAnUpdate(t *testing.T) {
	i := &v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{ServiceID: "s", Desired: v1alpha1.InstanceState{PlanID: "new"}}}
	uses := Uses{}
	uses.Add(i)
	i.Status.Delivered = &v1alpha1.DeliveredState{State: v1alpha1.InstanceState{PlanID: "old"}}
	uses.Add(i)
	if uses["s"]["new"] != 2 || uses["s"]["old"] != 1 {
		t.Errorf("uses %v", uses)
	}
}
