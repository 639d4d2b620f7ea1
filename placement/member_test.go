package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// joining sells clusters with Liqo that join as it says.
func joining(t *testing.T, join *v1alpha1.ClusterJoin) *catalog.Plan {
	t.Helper()
	spec := v1alpha1.ServiceOfferingSpec{ID: "service", Name: "clusters", Description: "Clusters.", Plans: []v1alpha1.Plan{{
		ID: "plan", Name: "plan", Description: "One worker.", Kind: v1alpha1.PlanKindCluster,
		Cluster: &v1alpha1.ClusterPlan{
			Class: "class", Versions: []string{"v1.34.4"}, Roles: []string{"admin"}, Join: join,
			AddOns: []v1alpha1.AddOn{{Name: "liqo", AddOnChart: v1alpha1.AddOnChart{Chart: "liqo-v1.2.0.tgz", Namespace: "liqo"}}},
		},
	}}}
	snapshot, err := catalog.Build([]v1alpha1.ServiceOffering{{Status: v1alpha1.ServiceOfferingStatus{Accepted: &spec}}}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := snapshot.Plan("service", "plan")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// What the cluster of an instance becomes is what its plan says, as far as its consumer chooses nothing
// else; a consumer's cluster belongs to who ordered it, and to nobody else.
func TestMemberOf(t *testing.T) {
	i := &v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{Platform: "cf", OrganizationGUID: "org", SpaceGUID: "space"}}
	template := v1alpha1.MemberTemplate{Region: "eu"}
	own := func(ref v1alpha1.ConsumerReference) *v1alpha1.ShapeMember {
		return &v1alpha1.ShapeMember{MemberTemplate: template, Consumers: []v1alpha1.ConsumerReference{ref}, GatewayService: corev1.ServiceTypeNodePort}
	}
	provider := &v1alpha1.ShapeMember{MemberTemplate: template, GatewayService: corev1.ServiceTypeNodePort}
	inSpace := v1alpha1.ConsumerReference{Platform: "cf", Organization: "org", Space: "space"}
	choose := []v1alpha1.PeeringSide{v1alpha1.SideConsumer, v1alpha1.SideProvider}
	for name, row := range map[string]struct {
		join       *v1alpha1.ClusterJoin
		parameters string
		want       *v1alpha1.ShapeMember
		refused    string
	}{
		"a plan without join":      {},
		"nor by a parameter":       {parameters: `{"join": "consumer"}`, refused: "join"},
		"a consumer's":             {join: &v1alpha1.ClusterJoin{As: v1alpha1.SideConsumer}, want: own(inSpace)},
		"of its whole platform":    {join: &v1alpha1.ClusterJoin{As: v1alpha1.SideConsumer, Owner: v1alpha1.ScopePlatform}, want: own(v1alpha1.ConsumerReference{Platform: "cf"})},
		"of its organization":      {join: &v1alpha1.ClusterJoin{As: v1alpha1.SideConsumer, Owner: v1alpha1.ScopeOrganization}, want: own(v1alpha1.ConsumerReference{Platform: "cf", Organization: "org"})},
		"a provider's":             {join: &v1alpha1.ClusterJoin{As: v1alpha1.SideProvider}, want: provider},
		"not to choose":            {join: &v1alpha1.ClusterJoin{As: v1alpha1.SideProvider}, parameters: `{"join": "consumer"}`, refused: "join"},
		"nothing is chosen":        {join: &v1alpha1.ClusterJoin{Settable: choose}},
		"a consumer's is chosen":   {join: &v1alpha1.ClusterJoin{Settable: choose}, parameters: `{"join": "consumer"}`, want: own(inSpace)},
		"a provider's is chosen":   {join: &v1alpha1.ClusterJoin{Settable: choose}, parameters: `{"join": "provider"}`, want: provider},
		"nothing instead":          {join: &v1alpha1.ClusterJoin{As: v1alpha1.SideProvider, Settable: choose[:1]}, parameters: `{"join": "nothing"}`},
		"the plan's own is chosen": {join: &v1alpha1.ClusterJoin{As: v1alpha1.SideProvider, Settable: choose[:1]}, parameters: `{"join": "provider"}`, want: provider},
		"only of those sold":       {join: &v1alpha1.ClusterJoin{Settable: choose[:1]}, parameters: `{"join": "provider"}`, refused: "join"},
	} {
		t.Run(name, func(t *testing.T) {
			if row.join != nil {
				row.join.Member, row.join.GatewayService = template, corev1.ServiceTypeNodePort
			}
			plan := joining(t, row.join)
			err := plan.ValidateCreate([]byte(row.parameters))
			if (err != nil) != (row.refused != "") || err != nil && !strings.Contains(err.Error(), row.refused) {
				t.Fatalf("its parameters: %v, want refusal %q", err, row.refused)
			}
			if err != nil {
				return
			}
			got, err := Policies{}.MemberOf(i, plan, []byte(row.parameters))
			if err != nil || !equality.Semantic.DeepEqual(got, row.want) {
				t.Errorf("%+v, %v; want %+v", got, err, row.want)
			}
			has := &v1alpha1.ClusterShape{Member: provider, AddOnsSold: plan.Cluster.AddOns, AddOns: plan.Cluster.AddOns}
			if rejoins := plan.RejoinsBy(has, []byte(row.parameters)); rejoins != (row.want.Side() != v1alpha1.SideProvider) {
				t.Errorf("what is a provider's rejoins: %t", rejoins)
			}
		})
	}
}

// A cluster that a policy made is as the policy describes it or, if the policy makes none any more, as it was made.
func TestMemberOfAClusterThatAPolicyMade(t *testing.T) {
	plan := joining(t, &v1alpha1.ClusterJoin{As: v1alpha1.SideConsumer, GatewayService: corev1.ServiceTypeNodePort})
	elastic := func(name, region string) *Policy {
		return &Policy{Name: name, Elastic: &v1alpha1.Elastic{Member: v1alpha1.MemberTemplate{Region: region}}}
	}
	member := func(region string, labels map[string]string) *v1alpha1.ShapeMember {
		return &v1alpha1.ShapeMember{MemberTemplate: v1alpha1.MemberTemplate{Region: region, Labels: labels}, GatewayService: corev1.ServiceTypeNodePort}
	}
	made := member("made", nil)
	for name, row := range map[string]struct {
		policies  Policies
		delivered bool
		want      *v1alpha1.ShapeMember
		fails     bool
	}{
		"by one of several":                             {policies: Policies{elastic("first", "us"), {Name: "other"}, elastic("grow", "eu")}, delivered: true, want: member("eu", map[string]string{v1alpha1.LabelElastic: "grow"})},
		"by one that has gone":                          {policies: Policies{elastic("first", "us")}, delivered: true, want: made},
		"by one that makes none":                        {policies: Policies{{Name: "grow"}}, delivered: true, want: made},
		"by one that has gone, and it is not delivered": {policies: Policies{elastic("first", "us")}, fails: true},
	} {
		i := &v1alpha1.ServiceInstance{}
		i.Labels = map[string]string{v1alpha1.LabelElastic: "grow"}
		if row.delivered {
			i.Status.Delivered = &v1alpha1.DeliveredState{Decision: v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "m", Shape: &v1alpha1.ClusterShape{Member: made}}}}}
		}
		got, err := row.policies.MemberOf(i, plan, nil)
		if (err != nil) != row.fails || !equality.Semantic.DeepEqual(got, row.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, row.want)
		}
	}
	r, err := NewRequest("si", plan, nil)
	if err != nil || r.Shape == nil || r.Shape.Variables != nil {
		t.Errorf("a cluster without variables is asked for as %+v: %v", r.Shape, err)
	}
}

// A control plane is asked for with as many machines as the plan has or its consumer chooses, if it runs on machines.
func TestTheControlPlaneThatIsAskedFor(t *testing.T) {
	for _, row := range []struct {
		machines   *v1alpha1.Machines
		parameters string
		want       *int32
	}{
		{nil, "", nil},
		{&v1alpha1.Machines{Replicas: 3}, "", ptr.To[int32](3)},
		{&v1alpha1.Machines{Replicas: 3, Max: 5}, `{"controlPlane": 5}`, ptr.To[int32](5)},
	} {
		plan := joining(t, nil)
		plan.Cluster.ControlPlane = row.machines
		r, err := NewRequest("si", plan, []byte(row.parameters))
		if err != nil || !equality.Semantic.DeepEqual(r.Shape.ControlPlane, row.want) {
			t.Errorf("%+v: asked for are %v machines, want %v: %v", row.machines, r.Shape.ControlPlane, row.want, err)
		}
	}
}
