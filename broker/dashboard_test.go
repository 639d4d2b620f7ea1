package broker

import (
	"context"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// passing is a plan that passes on the dashboards of one of two brokers.
func passing() *catalog.Plan {
	return &catalog.Plan{Plan: v1alpha1.Plan{
		DashboardURL: "https://dashboard.example.com/{platform}/{instance_id}/{instance}",
		Upstream:     &v1alpha1.UpstreamPlan{Candidates: []v1alpha1.UpstreamCandidate{{Broker: "passing", PassDashboard: true}, {Broker: "other"}}},
	}}
}

// orderedFrom is an instance that a broker delivers, whose dashboard is at url.
func orderedFrom(broker, url string) *v1alpha1.ServiceInstance {
	upstream := &v1alpha1.PlacementUpstream{}
	if url != "" {
		upstream.Dashboard = &v1alpha1.UpstreamDashboard{URL: url}
	}
	return &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Name: "si-1"}, Spec: v1alpha1.ServiceInstanceSpec{Platform: "cf eu", InstanceID: "a/b"},
		Status: v1alpha1.ServiceInstanceStatus{Decision: &v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: broker, Upstream: upstream}}}},
	}
}

func TestDashboardURL(t *testing.T) {
	const own, theirs = "https://dashboard.example.com/cf%20eu/a%2Fb/si-1", "https://theirs.example.com"
	for name, row := range map[string]struct {
		plan     *catalog.Plan
		instance *v1alpha1.ServiceInstance
		want     string
	}{
		"of the plan":   {&catalog.Plan{Plan: v1alpha1.Plan{DashboardURL: passing().DashboardURL}}, orderedFrom("passing", theirs), own},
		"of the broker": {passing(), orderedFrom("passing", theirs), theirs},
		"of the plan, as the broker has given none": {passing(), orderedFrom("passing", ""), own},
		"of the plan, as the broker's is not shown": {passing(), orderedFrom("other", theirs), own},
		"of the plan, before there is a decision":   {passing(), &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-1"}, Spec: orderedFrom("", "").Spec}, own},
		"of the plan, on a cluster":                 {passing(), onCluster(), own},
	} {
		if got := dashboardURL(row.plan, row.instance); got != row.want {
			t.Errorf("%s: got %s, want %s", name, got, row.want)
		}
	}
}

func onCluster() *v1alpha1.ServiceInstance {
	i := orderedFrom("passing", "")
	i.Status.Decision.Placements[0].Upstream = nil
	return i
}

// The answer to an order waits for the dashboard that the broker gives, and no longer than the order is in progress.
func TestAwaitDashboard(t *testing.T) {
	finished := orderedFrom("passing", "")
	finished.Status.Operation = &v1alpha1.Operation{Type: v1alpha1.OperationProvision, State: v1alpha1.StateFailed}
	deleted := orderedFrom("passing", "")
	deleted.DeletionTimestamp = &metav1.Time{}
	for name, row := range map[string]struct {
		plan *catalog.Plan
		last *v1alpha1.ServiceInstance // nil if nothing is to be waited for
	}{
		"a dashboard":             {passing(), orderedFrom("passing", "https://theirs.example.com")},
		"an order that failed":    {passing(), finished},
		"an order that is halted": {passing(), deleted},
		"a plan without":          {&catalog.Plan{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			watches := 0
			hub := interceptor.NewClient(nil, interceptor.Funcs{Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				watches++
				events := watch.NewFakeWithChanSize(2, false)
				events.Modify(orderedFrom("passing", "")) // nothing yet
				events.Modify(row.last)
				return events, nil
			}})
			s, first := &server{Options: Options{Client: hub}}, orderedFrom("passing", "")
			got := s.awaitDashboard(&call{Request: httptest.NewRequest("PUT", "/", nil)}, first, row.plan)
			want := row.last
			if want == nil {
				want = first
			}
			if got != want || watches > 0 != (row.last != nil) {
				t.Errorf("got %+v after %d watches, want %+v", got, watches, want)
			}
		})
	}
}
