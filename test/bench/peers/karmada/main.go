// Command karmada measures the core of Karmada's scheduler, with its in-tree plugins and
// default feature gates.
package main

import (
	"context"
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	clusterv1alpha1 "github.com/karmada-io/karmada/pkg/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/karmada-io/karmada/pkg/apis/policy/v1alpha1"
	workv1alpha2 "github.com/karmada-io/karmada/pkg/apis/work/v1alpha2"
	estimatorclient "github.com/karmada-io/karmada/pkg/estimator/client"
	clusterlister "github.com/karmada-io/karmada/pkg/generated/listers/cluster/v1alpha1"
	schedulercache "github.com/karmada-io/karmada/pkg/scheduler/cache"
	"github.com/karmada-io/karmada/pkg/scheduler/core"
	"github.com/karmada-io/karmada/pkg/scheduler/framework/plugins"

	"github.com/sluice-dev/sluice/test/bench/peers/fleet"
)

var _ = estimatorclient.UnauthenticReplica // the default estimator registers itself

func main() {
	flag.Parse()
	klog.SetOutput(discard{})
	klog.LogToStderr(false)
	fleet.Run("Karmada 1.18.2", func(q fleet.Question, clusters []fleet.Cluster) (func() error, string) {
		decide := scheduler(clusters)
		spec := binding(q)
		return func() error {
			result, err := decide(spec)
			if err != nil {
				return err
			}
			if len(result.SuggestedClusters) < q.Clusters && q.Groups == 0 {
				return fmt.Errorf("%d clusters", len(result.SuggestedClusters))
			}
			return nil
		}, ""
	})
	burst()
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// scheduler is the core over a cache of clusters.
func scheduler(clusters []fleet.Cluster) func(*workv1alpha2.ResourceBindingSpec) (core.ScheduleResult, error) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, c := range clusters {
		if err := indexer.Add(cluster(c)); err != nil {
			panic(err)
		}
	}
	bindings := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	algorithm, err := core.NewGenericScheduler(schedulercache.NewCache(clusterlister.NewClusterLister(indexer), bindings, 0), plugins.NewInTreeRegistry())
	if err != nil {
		panic(err)
	}
	return func(spec *workv1alpha2.ResourceBindingSpec) (core.ScheduleResult, error) {
		return algorithm.Schedule(context.Background(), spec, &workv1alpha2.ResourceBindingStatus{}, &core.ScheduleAlgorithmOption{})
	}
}

func cluster(c fleet.Cluster) *clusterv1alpha1.Cluster {
	amount := func(cores, gib, pods int64) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewMilliQuantity(cores*1000, resource.DecimalSI),
			corev1.ResourceMemory: *resource.NewQuantity(gib<<30, resource.BinarySI),
			corev1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
		}
	}
	used := int64(c.UsedPercent)
	one := &clusterv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{fleet.StageLabel: c.Stage()}},
		Spec:       clusterv1alpha1.ClusterSpec{Region: c.Region},
		Status: clusterv1alpha1.ClusterStatus{
			APIEnablements: []clusterv1alpha1.APIEnablement{{GroupVersion: "apps/v1", Resources: []clusterv1alpha1.APIResource{{Name: "deployments", Kind: "Deployment"}}}},
			Conditions:     []metav1.Condition{{Type: clusterv1alpha1.ClusterConditionReady, Status: metav1.ConditionTrue}},
			ResourceSummary: &clusterv1alpha1.ResourceSummary{
				Allocatable: amount(fleet.Cores, fleet.MemoryGiB, 1100), Allocated: amount(fleet.Cores*used/100, fleet.MemoryGiB*used/100, 10*used),
			},
		},
	}
	if c.Tainted {
		one.Spec.Taints = []corev1.Taint{{Key: fleet.TaintKey, Value: "batch", Effect: corev1.TaintEffectNoSchedule}}
	}
	return one
}

// binding asks for as many replicas as clusters, divided by what is available.
func binding(q fleet.Question) *workv1alpha2.ResourceBindingSpec {
	placement := &policyv1alpha1.Placement{
		ReplicaScheduling: &policyv1alpha1.ReplicaSchedulingStrategy{
			ReplicaSchedulingType: policyv1alpha1.ReplicaSchedulingTypeDivided, ReplicaDivisionPreference: policyv1alpha1.ReplicaDivisionPreferenceWeighted,
			WeightPreference: &policyv1alpha1.ClusterPreferences{DynamicWeight: policyv1alpha1.DynamicWeightByAvailableReplicas},
		},
	}
	if q.Prod {
		placement.ClusterAffinity = &policyv1alpha1.ClusterAffinity{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{fleet.StageLabel: "prod"}}}
	}
	of := func(field policyv1alpha1.SpreadFieldValue, n int) policyv1alpha1.SpreadConstraint {
		return policyv1alpha1.SpreadConstraint{SpreadByField: field, MinGroups: n, MaxGroups: n}
	}
	if q.Groups > 0 {
		placement.SpreadConstraints = append(placement.SpreadConstraints, of(policyv1alpha1.SpreadByFieldRegion, q.Groups))
	}
	placement.SpreadConstraints = append(placement.SpreadConstraints, of(policyv1alpha1.SpreadByFieldCluster, q.Clusters))
	return &workv1alpha2.ResourceBindingSpec{
		Resource: workv1alpha2.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "bench", UID: "bench"},
		Replicas: int32(q.Clusters), Placement: placement, ReplicaRequirements: half(),
	}
}

func half() *workv1alpha2.ReplicaRequirements {
	return &workv1alpha2.ReplicaRequirements{ResourceRequest: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}}
}

// burst asks for more than there is, back to back: faster than the clusters report
// what they run.
func burst() {
	clusters := fleet.Of(2, 2)
	for i := range clusters {
		clusters[i].UsedPercent, clusters[i].Tainted = 100-fleet.BurstRoom/2*100/(2*fleet.Cores), false
	}
	decide := scheduler(clusters)
	accepted := 0
	for range fleet.BurstAsked {
		if _, err := decide(binding(fleet.Question{Clusters: 1})); err == nil {
			accepted++
		}
	}
	fleet.Emit(fleet.Figure{Placer: "Karmada 1.18.2", Question: fleet.BurstQuestion, Clusters: 2, Note: fleet.BurstNote(accepted)})
}
