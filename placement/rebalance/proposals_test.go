package rebalance

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/placement"
)

// An instance keeps the rules for pods of the clusters where it stays: they are not those of today.
func TestAProposalKeepsTheRulesForPods(t *testing.T) {
	rules := []v1alpha1.WorkloadRules{{Digests: true}}
	i := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: "si-a"}}
	decision := v1alpha1.Decision{Placements: []v1alpha1.Placement{{Cluster: "eu", Workloads: rules}, {Cluster: "us"}}}
	i.Status.Decision = decision.DeepCopy()
	i.Status.Delivered = &v1alpha1.DeliveredState{Decision: decision}
	i.Status.Operation = &v1alpha1.Operation{State: v1alpha1.StateSucceeded}
	plans := func(string, string) (*catalog.Plan, error) {
		return &catalog.Plan{Plan: v1alpha1.Plan{Resources: &v1alpha1.ResourcesPlan{}}}, nil
	}
	request, settled := Settled(i, plans, placement.NewInventory().Snapshot(), time.Now())
	if !settled {
		t.Fatal("the instance may move")
	}
	if want := map[string][]v1alpha1.WorkloadRules{"eu": rules, "us": nil}; !reflect.DeepEqual(request.Sold, want) {
		t.Errorf("it was sold with %v, want %v", request.Sold, want)
	}
}
