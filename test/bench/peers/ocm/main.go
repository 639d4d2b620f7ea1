// Command ocm measures Open Cluster Management's placement scheduler.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	kevents "k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	listerv1 "open-cluster-management.io/api/client/cluster/listers/cluster/v1"
	lister1alpha1 "open-cluster-management.io/api/client/cluster/listers/cluster/v1alpha1"
	listerv1beta1 "open-cluster-management.io/api/client/cluster/listers/cluster/v1beta1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta1 "open-cluster-management.io/api/cluster/v1beta1"
	"open-cluster-management.io/ocm/pkg/placement/controllers/metrics"
	"open-cluster-management.io/ocm/pkg/placement/controllers/scheduling"

	"github.com/sluice-dev/sluice/test/bench/peers/fleet"
)

func main() {
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	fleet.Run("OCM 1.2.1", func(q fleet.Question, clusters []fleet.Cluster) (func() error, string) {
		if q.Groups > 0 {
			return nil, "has no spread"
		}
		decide := scheduler(clusters)
		p := placement(q)
		return func() error { return decide(p) }, ""
	})
	fleet.Emit(fleet.Figure{Placer: "OCM 1.2.1", Question: fleet.BurstQuestion, Clusters: 2, Note: "chooses clusters, and reserves nothing"})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func scheduler(clusters []fleet.Cluster) func(*clusterv1beta1.Placement) error {
	indexer := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	managed := indexer()
	var all []*clusterv1.ManagedCluster
	for _, c := range clusters {
		one := cluster(c)
		all = append(all, one)
		if err := managed.Add(one); err != nil {
			panic(err)
		}
	}
	handle := scheduling.NewSchedulerHandler(nil, listerv1beta1.NewPlacementDecisionLister(indexer()), lister1alpha1.NewAddOnPlacementScoreLister(indexer()),
		listerv1.NewManagedClusterLister(managed), kevents.NewFakeRecorder(0), metrics.NewScheduleMetrics(clock.RealClock{}))
	s := scheduling.NewPluginScheduler(handle)
	return func(p *clusterv1beta1.Placement) error {
		result, status := s.Schedule(context.Background(), p, slices.Clone(all)) // it sorts in place
		if status.IsError() {
			return status.AsError()
		}
		if len(result.Decisions()) != int(*p.Spec.NumberOfClusters) {
			return fmt.Errorf("%d clusters", len(result.Decisions()))
		}
		return nil
	}
}

func cluster(c fleet.Cluster) *clusterv1.ManagedCluster {
	amount := func(percent int) clusterv1.ResourceList {
		return clusterv1.ResourceList{
			clusterv1.ResourceCPU:    *resource.NewMilliQuantity(int64(fleet.Cores*10*percent), resource.DecimalSI),
			clusterv1.ResourceMemory: *resource.NewQuantity(int64(fleet.MemoryGiB<<30/100*percent), resource.BinarySI),
		}
	}
	one := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{fleet.StageLabel: c.Stage(), fleet.RegionLabel: c.Region}},
		Status:     clusterv1.ManagedClusterStatus{Capacity: amount(100), Allocatable: amount(100 - c.UsedPercent)},
	}
	if c.Tainted {
		one.Spec.Taints = []clusterv1.Taint{{Key: fleet.TaintKey, Value: "batch", Effect: clusterv1.TaintEffectNoSelect}}
	}
	return one
}

// placement prefers what has the most left, as the others do; OCM has no request.
func placement(q fleet.Question) *clusterv1beta1.Placement {
	n := int32(q.Clusters)
	p := &clusterv1beta1.Placement{
		ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: "default"},
		Spec: clusterv1beta1.PlacementSpec{NumberOfClusters: &n, PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{
			Mode: clusterv1beta1.PrioritizerPolicyModeExact,
			Configurations: []clusterv1beta1.PrioritizerConfig{
				{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeBuiltIn, BuiltIn: "ResourceAllocatableCPU"}},
				{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeBuiltIn, BuiltIn: "ResourceAllocatableMemory"}},
			},
		}},
	}
	if q.Prod {
		p.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
			LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{fleet.StageLabel: "prod"}},
		}}}
	}
	return p
}
