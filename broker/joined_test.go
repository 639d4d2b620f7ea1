package broker

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// A cluster that is a member cluster is not deleted while something is delivered to it: the answer names
// what the consumer can delete, and counts what only the operator can move.
func TestDeprovisionOfAClusterInUse(t *testing.T) {
	f := newFixture(t)
	f.provisioned("mine", planSmall)
	cluster := v1alpha1.InstanceClusterName(v1alpha1.InstanceName("cf-eu", "mine"))
	f.provisioned("node", planSmall)
	f.provisioned("theirs", planSmall, "space_guid", "other")
	f.placed("mine", v1alpha1.Placement{Cluster: "makers", Shape: &v1alpha1.ClusterShape{Class: "class", ClassNamespace: "default", Version: "v1.34.4", Member: &v1alpha1.ShapeMember{}}})
	f.placed("node", v1alpha1.Placement{Cluster: "provider", Peering: &v1alpha1.PlacementPeering{Consumer: cluster, Node: "node"}})
	f.placed("theirs", v1alpha1.Placement{Cluster: cluster})
	peering := func(consumer, provider string, kept bool) *v1alpha1.Peering {
		t.Helper()
		p := &v1alpha1.Peering{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.PeeringName(consumer, provider)},
			Spec:       v1alpha1.PeeringSpec{Consumer: consumer, Provider: provider, Modules: v1alpha1.ModulesFor(false), Kept: kept},
		}
		must(t, f.hub.Create(t.Context(), p))
		return p
	}
	kept, provides := peering(cluster, "provider", true), peering("consumer", cluster, true)
	peering("consumer", "provider", true) // of others
	peering("other", cluster, false)      // goes with the instances that need it

	remove := func(id string) string { return instancePath(id) + "&" + deletion(planSmall) }
	refused := func(says ...string) {
		t.Helper()
		a := f.refused(http.StatusUnprocessableEntity, "InUse", "DELETE", remove("mine"), nil)
		for _, text := range says {
			if !strings.Contains(a.body["description"].(string), text) {
				t.Errorf("it says %s, want %q", a, text)
			}
		}
		if strings.Contains(string(a.raw), "theirs") {
			t.Errorf("it names what is another's: %s", a)
		}
		if i := f.instance("cf-eu", "mine"); !i.DeletionTimestamp.IsZero() {
			t.Fatal("it is being deleted")
		}
	}
	refused("by the service instances node: delete them first", "by 1 service instances of others", "sluice cluster drain "+cluster, "a peering that the broker's operator keeps")
	f.fake.does("mine", hold)
	f.want(http.StatusAccepted, "PATCH", instancePath("mine"), patch("plan_id", planLarge)) // it stays a member cluster
	for _, id := range []string{"node", "theirs"} {
		a := f.want(http.StatusAccepted, "DELETE", remove(id), nil)
		f.eventually("the end of "+id, func() (answer, bool) {
			last := f.do("GET", "/v2/service_instances/"+id+"/last_operation?operation="+a.operation(), nil)
			return last, last.status == http.StatusGone
		})
	}
	for _, p := range []*v1alpha1.Peering{kept, provides} {
		refused("a peering that the broker's operator keeps")
		must(t, f.hub.Delete(t.Context(), p))
	}
	f.want(http.StatusAccepted, "DELETE", remove("mine"), nil)
}

// An update that takes a cluster out of the inventory is refused like its deletion.
func TestUpdateOfAClusterInUse(t *testing.T) {
	f := newFixture(t)
	const plan = "plan-cluster"
	sold := offerings()
	cluster := sold[0].Status.Accepted.Plans[0]
	cluster.ID, cluster.Name, cluster.Kind, cluster.Resources = plan, "cluster", v1alpha1.PlanKindCluster, nil
	cluster.Cluster = &v1alpha1.ClusterPlan{Class: "class", Versions: []string{"v1.34.4"}, Roles: []string{"view"}}
	sold[0].Status.Accepted.Plans = append(sold[0].Status.Accepted.Plans, cluster)
	f.sell(sold...)
	f.provisioned("mine", plan)
	f.provisioned("theirs", planSmall, "space_guid", "other")
	f.fake.does("mine", hold)
	name := v1alpha1.InstanceClusterName(v1alpha1.InstanceName("cf-eu", "mine"))
	shape := &v1alpha1.ClusterShape{Class: "class", ClassNamespace: "default", Version: "v1.34.4", Member: &v1alpha1.ShapeMember{}}
	f.placed("mine", v1alpha1.Placement{Cluster: "makers", Shape: shape}) // from when the plan had clusters join
	f.placed("theirs", v1alpha1.Placement{Cluster: name})
	body := patch("context", object{"instance_name": "a"}, "parameters", object{})
	f.refused(http.StatusUnprocessableEntity, "InUse", "PATCH", instancePath("mine"), body)
	f.placed("theirs", v1alpha1.Placement{Cluster: "another"})
	f.fake.does("mine", succeed)
	f.want(http.StatusOK, "PATCH", instancePath("mine"), body)
}

func TestOwners(t *testing.T) {
	of := func(platform, organization, space string) *v1alpha1.ServiceInstance {
		return &v1alpha1.ServiceInstance{Spec: v1alpha1.ServiceInstanceSpec{Platform: platform, OrganizationGUID: organization, SpaceGUID: space}}
	}
	for name, row := range map[string]struct {
		other *v1alpha1.ServiceInstance
		want  bool
	}{
		"the same": {of("p", "o", "s"), true}, "another platform": {of("q", "o", "s"), false},
		"another organization": {of("p", "n", "s"), false}, "another space": {of("p", "o", "t"), false},
	} {
		if got := sameOwner(of("p", "o", "s"), row.other); got != row.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
