// Command kubescheduler measures the Kubernetes scheduler with clusters as nodes,
// looking at every one of them (percentageOfNodesToScore 100) and, as it does by
// default, at a sample.
package main

import (
	"context"
	"flag"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/sluice-dev/sluice/test/bench/peers/fleet"
)

func main() {
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	measure("kube-scheduler 1.34, all nodes", 100)
	measure("kube-scheduler 1.34, sampling", 0)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func measure(name string, percentage int32) {
	fleet.Run(name, func(q fleet.Question, clusters []fleet.Cluster) (func() error, string) {
		if q.Groups > 0 {
			return nil, "places one pod at a time"
		}
		ctx := context.Background()
		client := fake.NewClientset()
		s, err := scheduler.New(ctx, client, informers.NewSharedInformerFactory(client, 0), nil,
			profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})),
			scheduler.WithPercentageOfNodesToScore(&percentage))
		if err != nil {
			return nil, err.Error()
		}
		logger := klog.FromContext(ctx)
		for _, c := range clusters {
			s.Cache.AddNode(logger, node(c))
			if err := s.Cache.AddPod(logger, user(c)); err != nil {
				return nil, err.Error()
			}
		}
		p := pod(q)
		return func() error {
			_, err := s.SchedulePod(ctx, s.Profiles["default-scheduler"], framework.NewCycleState(), p)
			return err
		}, ""
	})
	fleet.Emit(fleet.Figure{Placer: name, Question: fleet.BurstQuestion, Clusters: 2, Note: "assumes what it has placed: none oversold by design"})
}

func node(c fleet.Cluster) *corev1.Node {
	all := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(fleet.Cores*1000, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(fleet.MemoryGiB<<30, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(1100, resource.DecimalSI),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{
			fleet.StageLabel: c.Stage(), fleet.RegionLabel: c.Region, corev1.LabelHostname: c.Name,
		}},
		Status: corev1.NodeStatus{Capacity: all, Allocatable: all},
	}
	if c.Tainted {
		n.Spec.Taints = []corev1.Taint{{Key: fleet.TaintKey, Value: "batch", Effect: corev1.TaintEffectNoSchedule}}
	}
	return n
}

// user is a pod that takes what is used of a cluster.
func user(c fleet.Cluster) *corev1.Pod {
	p := template(int64(fleet.Cores*10*c.UsedPercent), int64(fleet.MemoryGiB<<30/100*c.UsedPercent))
	p.Name, p.UID, p.Spec.NodeName = "user-"+c.Name, types.UID("user-"+c.Name), c.Name
	return p
}

func pod(q fleet.Question) *corev1.Pod {
	p := template(500, 1<<30)
	if q.Prod {
		p.Spec.NodeSelector = map[string]string{fleet.StageLabel: "prod"}
	}
	return p
}

func template(milli, bytes int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: "default", UID: "bench"},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(milli, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(bytes, resource.BinarySI),
			}},
		}}},
	}
}
