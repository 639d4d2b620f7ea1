package broker

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
)

// dashboardWait limits how long the answer to an order waits for the dashboard_url of another broker.
const dashboardWait = 5 * time.Second

// dashboardURL returns the URL of an instance's dashboard: the plan's own, with its placeholders filled in, or
// else the one that another broker gave, if the plan passes it on.
func dashboardURL(plan *catalog.Plan, i *v1alpha1.ServiceInstance) string {
	if d := dashboardOf(plan, i); d != nil {
		return d.URL
	}
	return strings.NewReplacer(
		"{platform}", url.PathEscape(i.Spec.Platform),
		"{instance_id}", url.PathEscape(i.Spec.InstanceID),
		"{instance}", i.Name,
	).Replace(plan.DashboardURL)
}

// dashboardOf returns what a broker has said of the dashboard of an instance, if the plan passes it on; otherwise nil.
func dashboardOf(plan *catalog.Plan, i *v1alpha1.ServiceInstance) *v1alpha1.UpstreamDashboard {
	for _, p := range i.Status.InForce() {
		if p.Upstream != nil && plan.PassesDashboardOf(p.Cluster) {
			return p.Upstream.Dashboard
		}
	}
	return nil
}

// awaitDashboard waits until the broker from which an instance is ordered has given its dashboard_url, if the
// plan passes it on: OSB 2.17 ("Provisioning") wants it in the first answer to an order. It returns the instance
// as it was last seen. After dashboardWait, the instance's dashboard is only in later answers.
func (s *server) awaitDashboard(c *call, i *v1alpha1.ServiceInstance, plan *catalog.Plan) *v1alpha1.ServiceInstance {
	if !plan.PassesDashboards() {
		return i
	}
	ctx, cancel := context.WithTimeout(c.Context(), dashboardWait)
	defer cancel()
	i, _ = await(ctx, s.Client, i, &v1alpha1.ServiceInstanceList{}, func(i *v1alpha1.ServiceInstance) bool {
		return i.DeletionTimestamp != nil || !inProgress(instanceOperation(i)) || dashboardOf(plan, i) != nil
	})
	return i
}
