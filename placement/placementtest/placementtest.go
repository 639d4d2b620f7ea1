// Package placementtest has what the tests of placement and of its controllers share.
package placementtest

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Cluster is a member cluster in one line. It is reachable and verified by default.
type Cluster struct {
	Name    string              `json:"name"`
	Driver  string              `json:"driver"`
	Region  string              `json:"region"`
	Tier    v1alpha1.Tier       `json:"tier"`
	Labels  map[string]string   `json:"labels"`
	Taints  []corev1.Taint      `json:"taints"`
	Has     corev1.ResourceList `json:"has"`
	Foreign corev1.ResourceList `json:"foreign"`
	// Nodes have the free resources of each node; none means that it is not known.
	Nodes       []v1alpha1.NodesFree `json:"nodes"`
	Classes     []string             `json:"classes"`
	Currency    string               `json:"currency"`
	Prices      corev1.ResourceList  `json:"prices"`
	Latency     string               `json:"latency"`
	Cordoned    bool                 `json:"cordoned"`
	Unreachable string               `json:"unreachable"`
	Denied      string               `json:"denied"`
	Uncounted   string               `json:"uncounted"`
	Provider    string               `json:"provider"`
	// Location, Latencies, Oversubscription and Sell as in the spec.
	Location         *v1alpha1.Location         `json:"location"`
	Latencies        []v1alpha1.MeasuredLatency `json:"latencies"`
	Oversubscription corev1.ResourceList        `json:"oversubscription"`
	Sell             *v1alpha1.Sale             `json:"sell"`
	// Claims that the provider has proven; Unproven is what it has not proven.
	Claims   []v1alpha1.Claim `json:"claims"`
	Unproven string           `json:"unproven"`
	// Unguarded says why rules for pods would not be enforced.
	Unguarded string `json:"unguarded"`
	// Exposure as in the spec.
	Exposure *v1alpha1.ClusterExposure `json:"exposure"`
	// Pool as in the spec makes it one. Liqo and Consumers as in the spec; either makes it a cluster with the driver liqo.
	Pool      *v1alpha1.ClusterPool        `json:"pool"`
	Liqo      *v1alpha1.LiqoCluster        `json:"liqo"`
	Consumers []v1alpha1.ConsumerReference `json:"consumers"`
}

// MemberCluster returns the row as a resource of the hub.
func (r Cluster) MemberCluster() *v1alpha1.MemberCluster {
	mc := &v1alpha1.MemberCluster{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Labels: r.Labels},
		Spec:       v1alpha1.MemberClusterSpec{Driver: r.Driver, Region: r.Region, Tier: r.Tier, Taints: r.Taints, Unschedulable: r.Cordoned},
		Status:     v1alpha1.MemberClusterStatus{Allocatable: r.Has, ForeignUse: r.Foreign, StorageClasses: r.Classes},
	}
	if r.Nodes != nil {
		mc.Status.Holes = &v1alpha1.Holes{Free: corev1.ResourceList{}, Nodes: r.Nodes}
		for _, nodes := range r.Nodes {
			for name, each := range nodes.Free {
				sum := mc.Status.Holes.Free[name]
				for range nodes.Count {
					sum.Add(each)
				}
				mc.Status.Holes.Free[name] = sum
			}
		}
	}
	mc.Spec.Exposure = r.Exposure
	mc.Spec.Provider, mc.Status.Claims = r.Provider, r.Claims
	mc.Spec.Location, mc.Spec.Latencies, mc.Spec.Oversubscription = r.Location, r.Latencies, r.Oversubscription
	mc.Spec.Liqo, mc.Spec.Consumers, mc.Spec.Sell = r.Liqo, r.Consumers, r.Sell
	if r.Liqo != nil || r.Consumers != nil {
		mc.Spec.Driver = v1alpha1.DriverLiqo
	}
	if mc.Spec.Pool = r.Pool; r.Pool != nil {
		mc.Spec.Driver = v1alpha1.DriverPool
	}
	if r.Claims != nil || r.Unproven != "" {
		mc.Spec.Trust = &v1alpha1.TrustRequirements{Offering: "https://provider.example/offering"}
	}
	if r.Currency != "" {
		mc.Spec.Prices = &v1alpha1.PriceList{Currency: r.Currency, PerHour: r.Prices}
	}
	if r.Latency != "" {
		latency, err := time.ParseDuration(r.Latency)
		if err != nil {
			panic(err)
		}
		mc.Status.Latency = &metav1.Duration{Duration: latency}
	}
	for condition, problem := range map[string]string{
		v1alpha1.ConditionReachable: r.Unreachable, v1alpha1.ConditionAccessVerified: r.Denied, v1alpha1.ConditionCapacityKnown: r.Uncounted, v1alpha1.ConditionAdmitted: r.Unproven, v1alpha1.ConditionRulesEnforced: r.Unguarded,
	} {
		status := metav1.ConditionTrue
		if problem != "" {
			status = metav1.ConditionFalse
		}
		v1alpha1.SetCondition(&mc.Status.Conditions, 1, condition, status, "Test", problem)
	}
	return mc
}

// Quantities reads "cpu=4,memory=8Gi".
func Quantities(list string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, pair := range strings.Split(list, ",") {
		name, amount, ok := strings.Cut(pair, "=")
		if !ok {
			panic(fmt.Sprintf("%q is not name=amount", pair))
		}
		out[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return out
}

// PriorityClasses declares gold over silver over bronze.
func PriorityClasses(namespace string, preempts v1alpha1.Preempts) *v1alpha1.PlacementPolicy {
	return &v1alpha1.PlacementPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "classes"},
		Spec: v1alpha1.PlacementPolicySpec{PriorityClasses: []v1alpha1.PriorityClass{
			{Name: "gold", Value: 1000, Preempts: preempts}, {Name: "silver", Value: 100, Preempts: preempts},
			{Name: "bronze", Value: 10, Preempts: v1alpha1.PreemptsNever},
		}},
	}
}
