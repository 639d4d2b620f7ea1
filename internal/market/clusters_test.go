package market

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestTheOperatorDrains: the operator cordons, drains and uncordons any cluster, and changes nothing that is its
// provider's; a provider does not touch the operator's cordon.
func TestTheOperatorDrains(t *testing.T) {
	w := newWorld(t)
	must(t, w.Create(t.Context(), &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "a"}, Spec: v1alpha1.MemberClusterSpec{
		Access: v1alpha1.ClusterAccess{SealedKubeconfig: []byte("sealed")}, Provider: "acme",
	}}))
	patch := func(caller, body string) request {
		return request{method: "PATCH", path: "/market/v1/clusters/a", with: w.as(caller), body: body, header: map[string]string{"If-Match": "*"}}
	}
	begun := (*metav1.Time)(nil)
	for _, row := range []struct {
		body              string
		cordoned, drained bool
	}{
		{`{"cordoned_by_operator": true}`, true, false},
		{`{"draining": true}`, true, true},
		{`{"cordoned_by_operator": true}`, true, true},
		{`{"draining": true}`, true, true},
		{`{"draining": false}`, true, false},
		{`{"draining": true}`, true, true},
		{`{"cordoned_by_operator": false}`, false, false},
	} {
		var got clusterBody
		if answer := w.send(patch("operator", row.body), &got); answer.StatusCode != http.StatusOK || got.CordonedByOperator != row.cordoned || got.Draining != row.drained || got.Cordoned {
			t.Errorf("%s is answered %d, %+v", row.body, answer.StatusCode, got)
		}
		stored := &v1alpha1.MemberCluster{}
		must(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "a"}, stored))
		if len(stored.Spec.Taints) > 1 || row.drained && stored.Spec.Taints[0].TimeAdded == nil {
			t.Errorf("%s: the taints are %v", row.body, stored.Spec.Taints)
		}
		if row.drained && begun != nil && !begun.Equal(stored.Spec.Taints[0].TimeAdded) {
			t.Errorf("%s: the drain begins again", row.body)
		}
		if begun = nil; row.drained {
			begun = stored.Spec.Taints[0].TimeAdded
		}
	}

	for supposed, why := range map[string]string{"drained": "lost: false", "lost": "lost: true"} {
		var would struct {
			Moves   []Move
			Untried int
		}
		if answer := w.send(request{method: "GET", path: "/market/v1/clusters/a/moves?if=" + supposed, with: w.as("operator")}, &would); answer.StatusCode != http.StatusOK ||
			len(would.Moves) != 2 || would.Moves[0].To[0] != "beside-a" || would.Moves[1].Why != why || would.Untried != 7 {
			t.Errorf("if it were %s: %d, %+v", supposed, answer.StatusCode, would)
		}
	}
	w.refused(request{method: "GET", path: "/market/v1/clusters/a/moves?if=sold", with: w.as("operator")}, http.StatusBadRequest, "drained or lost")
	w.refused(request{method: "GET", path: "/market/v1/clusters/absent/moves?if=lost", with: w.as("operator")}, http.StatusNotFound, "no cluster absent")

	pinned := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "si-1"}, Spec: v1alpha1.ServiceInstanceSpec{
		Platform: "cf", InstanceID: "db", ServiceID: "db", OrganizationGUID: "o", SpaceGUID: "s", Desired: v1alpha1.InstanceState{PlanID: "db"},
	}}
	must(t, w.Create(t.Context(), pinned))
	volume := corev1.ResourceList{"standard.storageclass.storage.k8s.io/requests.storage": resource.MustParse("1Gi")}
	pinned.Status.Delivered = &v1alpha1.DeliveredState{State: pinned.Spec.Desired, Decision: v1alpha1.Decision{
		Generation: 1, Workload: &v1alpha1.WorkloadPlan{Components: []v1alpha1.WorkloadComponent{{Name: "db"}}}, Placements: []v1alpha1.Placement{{Cluster: "a", Reserved: volume}},
	}}
	must(t, w.Status().Update(t.Context(), pinned))
	for name, row := range map[string]struct {
		caller, body string
		status       int
		why          string
	}{
		"volumes would be lost":      {"operator", `{"draining": true}`, http.StatusConflict, "si-1"},
		"drained and uncordoned":     {"operator", `{"draining": true, "cordoned_by_operator": false}`, http.StatusBadRequest, "cordoned_by_operator"},
		"a drain of null":            {"operator", `{"draining": null}`, http.StatusBadRequest, "draining: want true or false"},
		"a cordon of null":           {"operator", `{"cordoned_by_operator": null}`, http.StatusBadRequest, "cordoned_by_operator: want true or false"},
		"a drain of a text":          {"operator", `{"draining": "true"}`, http.StatusBadRequest, "draining: want true or false"},
		"the provider's cordon":      {"operator", `{"cordoned": true}`, http.StatusForbidden, "provider"},
		"the provider's prices":      {"operator", `{"prices": null}`, http.StatusForbidden, "provider"},
		"the operator's cordon":      {"provider:acme", `{"cordoned_by_operator": false}`, http.StatusForbidden, "operator"},
		"a drain by the provider":    {"provider:acme", `{"draining": true}`, http.StatusForbidden, "operator"},
		"a drain by nobody's right":  {"platform:cf", `{"draining": true}`, http.StatusForbidden, "may not call"},
		"a price of no resource":     {"provider:acme", `{"prices": {"currency": "EUR", "perHour": {"cpuu": "0.01"}}}`, http.StatusUnprocessableEntity, `prices.perHour: "cpuu" is no resource`},
		"a sale of no resource":      {"provider:acme", `{"sell": {"atMost": {"mem": "1Gi"}}}`, http.StatusUnprocessableEntity, `sell.atMost: "mem" is no resource`},
		"another provider's cluster": {"provider:rival", `{"cordoned": true}`, http.StatusForbidden, "is not rival's"},
	} {
		t.Run(name, func(t *testing.T) {
			w.T = t
			w.refused(patch(row.caller, row.body), row.status, row.why)
		})
	}
	w.T = t
}
