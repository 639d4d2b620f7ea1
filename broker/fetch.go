package broker

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/pivotal-cf/brokerapi/v10/domain"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// fetch answers GET /v2/service_instances/:id (OSB 2.17, "Fetching a Service Instance")
// with the state that is in force.
func (s *server) fetch(c *call) (*reply, error) {
	i, err := s.findInstance(c)
	switch {
	case err != nil:
		return nil, err
	case i == nil, i.Status.Delivered == nil:
		return nil, errNoInstance
	case i.DeletionTimestamp != nil, inProgress(instanceOperation(i)):
		return nil, errConcurrency
	}
	state := i.StateInForce()
	body := fetchedInstanceBody{Parameters: workload.ShownParameters(rawOf(state.Parameters))}
	body.ServiceID, body.PlanID = i.Spec.ServiceID, state.PlanID
	if plan, err := s.Catalog.Snapshot().Plan(i.Spec.ServiceID, state.PlanID); err == nil {
		body.DashboardURL = dashboardURL(plan, i)
		if c.version >= v17 && state.MaintenanceVersion != "" {
			body.MaintenanceInfo = &maintenanceBody{Version: state.MaintenanceVersion}
			if m := plan.MaintenanceInfo; m != nil && m.Version == state.MaintenanceVersion {
				body.MaintenanceInfo.Description = m.Description
			}
		}
	}
	if c.version >= v17 {
		body.Metadata = &domain.InstanceMetadata{Labels: instanceLabels(i), Attributes: s.whereabouts(c, i)}
	}
	return &reply{status: http.StatusOK, body: body}, nil
}

// instanceLabels returns the labels of an instance's metadata: the name of its resource, by
// which the operator finds it.
func instanceLabels(i *v1alpha1.ServiceInstance) map[string]string {
	return map[string]string{v1alpha1.LabelInstance: i.Name}
}

// whereabouts names the clusters of an instance, their regions if known, the cluster of each component,
// and how many of its copies work in each group of clusters.
func (s *server) whereabouts(c *call, i *v1alpha1.ServiceInstance) map[string]string {
	var clusters, regions, components []string
	for _, placement := range i.Status.Delivered.Decision.Placements {
		clusters = append(clusters, placement.Cluster)
		for _, component := range placement.Components {
			components = append(components, component+"="+placement.Cluster)
		}
		var cluster v1alpha1.MemberCluster
		if err := s.Client.Get(c.Context(), client.ObjectKey{Namespace: s.Namespace, Name: placement.Cluster}, &cluster); err == nil && cluster.Spec.Region != "" {
			regions = append(regions, cluster.Spec.Region)
		}
	}
	attributes := map[string]string{}
	if len(clusters) > 0 {
		attributes["clusters"] = strings.Join(clusters, ",")
	}
	if len(regions) > 0 {
		slices.Sort(regions)
		attributes["regions"] = strings.Join(slices.Compact(regions), ",")
	}
	if copies := copiesOf(i); len(copies) > 0 {
		attributes["copies"] = strings.Join(copies, "; ")
	}
	if len(components) > 0 {
		slices.Sort(components)
		attributes["components"] = strings.Join(components, ",")
	}
	return attributes
}

// copiesOf returns, for each group of clusters that has copies of an instance, the group and how many of
// them work, for instance "topology.kubernetes.io/region=eu: 1 of 1 ready".
func copiesOf(i *v1alpha1.ServiceInstance) (groups []string) {
	all, ready := map[string]int{}, map[string]int{}
	for _, c := range i.Status.Copies {
		all[c.In()]++
		if c.Ready {
			ready[c.In()]++
		}
	}
	for _, group := range slices.Sorted(maps.Keys(all)) {
		if group != "" { // otherwise the instance leaves that cluster
			groups = append(groups, fmt.Sprintf("%s: %d of %d ready", group, ready[group], all[group]))
		}
	}
	return groups
}
