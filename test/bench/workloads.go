package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// workloadOffering sells a Deployment of one pod.
const workloadOffering = `
apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata:
  name: workloads
  namespace: sluice
spec:
  id: workloads
  name: workloads
  description: What the benchmark runs
  plans:
    - id: pod
      name: pod
      description: One pod
      kind: workload
      workload:
        components:
          - name: web
            container: {image: registry.example/web, resources: {cpu: 10m, memory: 16Mi}}
`

// measureWorkloads compares a workload that is ordered with a Deployment of the same pod that a client
// creates in a namespace that is there.
func measureWorkloads(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "How long does it take until a workload's pod is scheduled, beside a Deployment by hand?",
		note: "One member cluster, a real control plane on the same machine, with simulated kubelets. By hand is a Go client that " +
			"creates a Deployment of the same pod in a namespace that is there; Sluice also makes the namespace, with its quota, " +
			"rights and policies. Alone: one after the other, the two in turn. Together: all are ordered at the same time; the figure is when the last is. " +
			"Gone: from the request until no pod is left.",
		header: []string{"", "by hand", "Sluice", "bar", ""},
	}
	s, clusters, err := b.serveWithClusters(ctx, "workloads", 1)
	defer b.release(clusters)
	if err != nil {
		return t, err
	}
	defer s.kill()
	if err := s.operate(ctx, strings.NewReader(workloadOffering), "catalog", "apply", "-f", "-"); err != nil {
		return t, err
	}
	member, err := kubernetes.NewForConfig(clusters[0].Config())
	if err != nil {
		return t, err
	}
	pods, err := followPods(ctx, member)
	if err != nil {
		return t, err
	}
	ways := []way{byHand(member, pods), bySluice(s, pods)}
	count := pick(b, 100, 3)

	scheduled, gone := make([]latencies, len(ways)), make([]latencies, len(ways))
	for n := range count {
		if n%20 == 0 {
			b.say("workloads: alone, %d of %d", n, count)
		}
		for i, w := range ways {
			name := fmt.Sprintf("alone-%d", n)
			took, err := timed(func() error { return w.start(ctx, name) })
			if err != nil {
				return t, err
			}
			scheduled[i] = append(scheduled[i], took)
			if err := w.settle(ctx, name); err != nil {
				return t, err
			}
			if took, err = timed(func() error { return w.end(ctx, name) }); err != nil {
				return t, err
			}
			gone[i] = append(gone[i], took)
		}
	}
	all, none := make([]time.Duration, len(ways)), make([]time.Duration, len(ways))
	for i, w := range ways {
		b.say("workloads: %d together, %s", count, []string{"by hand", "Sluice"}[i])
		if all[i], err = timed(func() error { return together(ctx, count, w.start) }); err != nil {
			return t, err
		}
		if err := together(ctx, count, w.settle); err != nil {
			return t, err
		}
		if none[i], err = timed(func() error { return together(ctx, count, w.end) }); err != nil {
			return t, err
		}
	}
	const bar = 100 * time.Millisecond
	hand, own := scheduled[0].median(), scheduled[1].median()
	t.add("scheduled, alone, median", milliseconds(hand), milliseconds(own), "≤ "+milliseconds(bar)+" over by hand", fmt.Sprintf("%s (%+.0f ms)", verdict(own-hand <= bar), (own-hand).Seconds()*1000))
	t.add("scheduled, alone, p90", milliseconds(scheduled[0].quantile(0.9)), milliseconds(scheduled[1].quantile(0.9)), "", "")
	ratio := func(name string, hand, own time.Duration, most float64) {
		times := own.Seconds() / hand.Seconds()
		t.add(name, milliseconds(hand), milliseconds(own), fmt.Sprintf("≤ %.1f × by hand", most), fmt.Sprintf("%s (%.2f ×)", verdict(times <= most), times))
	}
	ratio("gone, alone, median", gone[0].median(), gone[1].median(), 1.1)
	ratio(fmt.Sprintf("scheduled, %d together", count), all[0], all[1], 1.2)
	ratio(fmt.Sprintf("gone, %d together", count), none[0], none[1], 1.2)
	return t, nil
}

// way is a way to have a pod: start returns when it is scheduled, settle when nothing is waited for any
// more, end when the pod is gone.
type way struct {
	start, settle, end func(ctx context.Context, name string) error
}

func byHand(member kubernetes.Interface, pods *podWatch) way {
	const namespace = "default"
	deployments := member.AppsV1().Deployments(namespace)
	return way{
		start: func(ctx context.Context, name string) error {
			labels := map[string]string{"app": name}
			limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
			_, err := deployments.Create(ctx, &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: appsv1.DeploymentSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels},
						Spec: corev1.PodSpec{Containers: []corev1.Container{{
							Name: "web", Image: "registry.example/web", Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits},
						}}},
					},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			return pods.await(ctx, namespace+"/"+name, true)
		},
		settle: func(context.Context, string) error { return nil },
		end: func(ctx context.Context, name string) error {
			background := metav1.DeletePropagationBackground
			if err := deployments.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
				return err
			}
			return pods.await(ctx, namespace+"/"+name, false)
		},
	}
}

func bySluice(s *sluice, pods *podWatch) way {
	const query = "?accepts_incomplete=true&service_id=workloads&plan_id=pod"
	key := func(id string) string { return v1alpha1.MemberNamespace(v1alpha1.InstanceName("bench", id)) + "/web" }
	return way{
		start: func(ctx context.Context, name string) error {
			r, err := s.request(ctx, http.MethodPut, "/v2/service_instances/"+name+query,
				[]byte(`{"service_id":"workloads","plan_id":"pod","organization_guid":"o","space_guid":"s"}`))
			if err == nil {
				err = s.send(r, http.StatusAccepted, nil)
			}
			if err != nil {
				return err
			}
			return pods.await(ctx, key(name), true)
		},
		settle: s.await, // only what is there can be given back
		end: func(ctx context.Context, name string) error {
			r, err := s.request(ctx, http.MethodDelete, "/v2/service_instances/"+name+query, nil)
			if err == nil {
				err = s.send(r, http.StatusAccepted, nil)
			}
			if err != nil {
				return err
			}
			return pods.await(ctx, key(name), false)
		},
	}
}

func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// together does something for so many names at once.
func together(ctx context.Context, count int, do func(context.Context, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range count {
		group.Go(func() error { return do(ctx, fmt.Sprintf("together-%d", n)) })
	}
	return group.Wait()
}

// podWatch follows the pods of a cluster. Those of one Deployment have the key namespace/deployment.
type podWatch struct {
	mu      sync.Mutex
	on      map[string]map[string]bool // the pods that are there by key; true if scheduled
	changed chan struct{}              // closed at the next change
}

func followPods(ctx context.Context, member kubernetes.Interface) (*podWatch, error) {
	w := &podWatch{on: map[string]map[string]bool{}, changed: make(chan struct{})}
	factory := informers.NewSharedInformerFactory(member, 0)
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.put(o.(*corev1.Pod), false) },
		UpdateFunc: func(_, o any) { w.put(o.(*corev1.Pod), false) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			w.put(o.(*corev1.Pod), true)
		},
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return w, nil
}

func (w *podWatch) put(pod *corev1.Pod, gone bool) {
	name := pod.Labels["app"]
	if component := pod.Labels[v1alpha1.LabelComponent]; component != "" {
		name = component
	}
	key := pod.Namespace + "/" + name
	w.mu.Lock()
	defer w.mu.Unlock()
	// Names come back: the pods of a former life do not count.
	pods := maps.Clone(w.on[key])
	if pods == nil {
		pods = map[string]bool{}
	}
	if delete(pods, pod.Name); !gone {
		pods[pod.Name] = pod.Spec.NodeName != ""
	}
	w.on[key] = pods
	close(w.changed)
	w.changed = make(chan struct{})
}

// await returns when a pod of a key is scheduled, or when none is left.
func (w *podWatch) await(ctx context.Context, key string, scheduled bool) error {
	for {
		w.mu.Lock()
		pods, changed := w.on[key], w.changed
		w.mu.Unlock()
		any := false
		for _, is := range pods {
			any = any || is
		}
		if scheduled && any || !scheduled && len(pods) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the pods of %s: %w", key, ctx.Err())
		case <-changed:
		}
	}
}
