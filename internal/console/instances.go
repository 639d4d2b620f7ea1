package console

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// instanceRow is an instance in a list.
type instanceRow struct {
	// Name of the resource, and ID as the platform chose it.
	Name, ID, Platform, Service, Plan string
	Clusters                          []string
	State                             state
	Created                           metav1.Time
	// summary is the message for consumers.
	summary string
}

// listed returns all instances as lists show them, at most a moment old. They must not be changed.
func (s *server) listed(ctx context.Context) ([]*instanceRow, error) {
	return s.lists.get(ctx, s.Clock, func(ctx context.Context) ([]*instanceRow, error) {
		all, err := s.instances(ctx, func(*v1alpha1.ServiceInstance) bool { return true })
		return s.rows(all), err
	})
}

// instances returns those that are selected. They must not be changed.
func (s *server) instances(ctx context.Context, has func(*v1alpha1.ServiceInstance) bool) (found []*v1alpha1.ServiceInstance, err error) {
	var all v1alpha1.ServiceInstanceList
	if err := s.list(ctx, &all); err != nil {
		return nil, err
	}
	for i := range all.Items {
		if has(&all.Items[i]) {
			found = append(found, &all.Items[i])
		}
	}
	return found, nil
}

// rows returns instances as a list shows them: those that need attention first, then the newest.
func (s *server) rows(instances []*v1alpha1.ServiceInstance) []*instanceRow {
	rows := make([]*instanceRow, len(instances))
	for n, i := range instances {
		service, plan := s.planOf(i)
		rows[n] = &instanceRow{
			Name: i.Name, ID: i.Spec.InstanceID, Platform: i.Spec.Platform, Service: service, Plan: plan,
			Clusters: i.Status.Decision.Clusters(), State: instanceState(i), Created: v1alpha1.CreatedOf(i), summary: summary(i),
		}
	}
	slices.SortStableFunc(rows, func(a, b *instanceRow) int {
		return cmp.Or(rankOf(a.State)-rankOf(b.State), b.Created.Compare(a.Created.Time))
	})
	return rows
}

// planOf returns the names of an instance's service and plan, or their ids if they are not offered any more.
func (s *server) planOf(i *v1alpha1.ServiceInstance) (service, plan string) {
	return s.names(i.Spec.ServiceID, i.Spec.Desired.PlanID)
}

func (s *server) names(serviceID, planID string) (service, plan string) {
	if service, plan = s.Catalog.Names(serviceID, planID); plan == "" {
		return serviceID, planID
	}
	return service, plan
}

// instanceState returns the state of an instance; one that waits for room needs attention.
func instanceState(i *v1alpha1.ServiceInstance) state {
	s := stateOf(i.Status.Conditions, v1alpha1.CreatedOf(i))
	placed := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionPlaced)
	switch {
	case !i.DeletionTimestamp.IsZero():
		s.Kind, s.Word = "busy", "Being deleted"
	case placed != nil && placed.Status != metav1.ConditionTrue && placed.Reason == v1alpha1.ReasonUnplaceable && s.Kind != "good":
		return state{Kind: "bad", Word: "Waits for room", Reason: placed.Reason, Message: placed.Message, Since: placed.LastTransitionTime}
	case i.Status.IsMoving() && s.Kind != "bad":
		s.Kind, s.Word = "busy", "Moving"
	}
	return s
}

// instancesData is the data of the list of instances.
type instancesData struct {
	Filter    filter
	Platforms []string
	Instances []*instanceRow
	Pages     pager
}

func (s *server) instancesPage(c *call) (*page, error) {
	all, err := s.listed(c.Context())
	if err != nil {
		return nil, err
	}
	by := filterOf(c, "platform", "state", "text")
	data := instancesData{Filter: by}
	seen := map[string]bool{}
	for _, i := range all {
		if !seen[i.Platform] {
			seen[i.Platform], data.Platforms = true, append(data.Platforms, i.Platform)
		}
	}
	slices.Sort(data.Platforms)
	rows := slices.DeleteFunc(slices.Clone(all), func(r *instanceRow) bool {
		return !by.is("platform", r.Platform) || !by.is("state", r.State.Kind) || !by.has(r.ID, r.Name, r.Platform, r.Service+"/"+r.Plan, strings.Join(r.Clusters, " "), r.State.Message)
	})
	data.Instances, data.Pages = paged(c, rows)
	return &page{Title: "Instances", template: "instances", Live: Root + "live", Data: data}, nil
}
