package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/bench/peers"
	"github.com/sluice-dev/sluice/test/controlplane"
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

// measureWorkloads compares ways to have a pod on a member cluster.
func measureWorkloads(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "How long does it take until a workload's pod is scheduled, beside a Deployment by hand, OCM and Karmada?",
		note: "One member cluster, a real control plane on the same machine, with simulated kubelets. By hand is a Go client that " +
			"creates a Deployment of the same pod in a namespace that is there; of the same objects, one that creates the very objects that " +
			"Sluice has delivered, each after the other, and deletes their namespace and its pods. OCM and Karmada are running, each with a control plane of " +
			"its own as hub, and carry the same Deployment to a namespace that is there, by a placement and a policy that are there; " +
			"Sluice also makes the namespace, with its quota, rights and policies. Alone: one after the other, the ways in turn. " +
			"Together: all are ordered at the same time; the figure is when the last is. Gone: from the request until no pod is left.",
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
	same, err := newHand(ctx, s, clusters[0], "workloads", "pod")
	if err != nil {
		return t, err
	}
	ways := []way{byHand(member, pods), bySame(same, pods)}
	others, stop, err := b.startPeers(ctx, clusters[0], member, pods)
	defer stop()
	if err != nil {
		return t, err
	}
	ways = append(append(ways, others...), bySluice(s, pods))
	t.header = []string{""}
	for _, w := range ways {
		t.header = append(t.header, w.name)
	}
	t.header = append(t.header, "bar", "")
	count := pick(b, 100, 3)

	scheduled, gone := make([]latencies, len(ways)), make([]latencies, len(ways))
	for n := range count {
		if n%20 == 0 {
			b.say("workloads: alone, %d of %d", n, count)
		}
		for i, w := range ways {
			name := fmt.Sprintf("alone-%d", n)
			took, err := timed(func() error { return w.do(ctx, w.start, name) })
			if err != nil {
				return t, err
			}
			scheduled[i] = append(scheduled[i], took)
			if err := w.do(ctx, w.settle, name); err != nil {
				return t, err
			}
			if took, err = timed(func() error { return w.do(ctx, w.end, name) }); err != nil {
				return t, err
			}
			gone[i] = append(gone[i], took)
		}
	}
	all, none := make([]time.Duration, len(ways)), make([]time.Duration, len(ways))
	if err := awaitCalm(ctx, member); err != nil {
		return t, err
	}
	for i, w := range ways {
		b.say("workloads: %d together, %s", count, w.name)
		if all[i], err = timed(func() error { return w.together(ctx, w.start, count) }); err != nil {
			return t, err
		}
		if err := w.together(ctx, w.settle, count); err != nil {
			return t, err
		}
		if none[i], err = timed(func() error { return w.together(ctx, w.end, count) }); err != nil {
			return t, err
		}
		if err := awaitCalm(ctx, member); err != nil {
			return t, err
		}
	}
	row := func(name string, took []time.Duration, bar, result string) {
		cells := []string{name}
		for _, each := range took {
			cells = append(cells, milliseconds(each))
		}
		t.add(append(cells, bar, result)...)
	}
	const bar = 100 * time.Millisecond
	medians := each(scheduled, latencies.median)
	over := medians[len(medians)-1] - medians[0]
	row("scheduled, alone, median", medians, "≤ "+milliseconds(bar)+" over by hand", fmt.Sprintf("%s (%+.0f ms)", verdict(over <= bar), over.Seconds()*1000))
	row("scheduled, alone, p90", each(scheduled, func(l latencies) time.Duration { return l.quantile(0.9) }), "", "")
	ratio := func(name string, took []time.Duration, most float64) {
		times := took[len(took)-1].Seconds() / took[0].Seconds()
		row(name, took, fmt.Sprintf("≤ %.1f × by hand", most), fmt.Sprintf("%s (%.2f ×)", verdict(times <= most), times))
	}
	ratio("gone, alone, median", each(gone, latencies.median), 1.1)
	ratio(fmt.Sprintf("scheduled, %d together", count), all, 1.2)
	ratio(fmt.Sprintf("gone, %d together", count), none, 1.2)
	return t, nil
}

// each returns a figure of each way's latencies.
func each(all []latencies, figure func(latencies) time.Duration) []time.Duration {
	var figures []time.Duration
	for _, l := range all {
		figures = append(figures, figure(l))
	}
	return figures
}

// startPeers runs those peers that -rows names with a member cluster. stop ends those that were started, and is never nil.
func (b *bench) startPeers(ctx context.Context, cluster *controlplane.ControlPlane, member kubernetes.Interface, pods *podWatch) (ways []way, stop func(), err error) {
	var running []peers.Peer
	stop = func() {
		for _, p := range running {
			_ = p.Stop() // an end before this one has shown already
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: peers.Namespace}}
	if _, err := member.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, stop, err
	}
	for _, known := range []struct {
		name  string
		start func(context.Context, string, *controlplane.ControlPlane) (peers.Peer, error)
	}{{"OCM", peers.StartOCM}, {"Karmada", peers.StartKarmada}} {
		if !b.measures(known.name) {
			continue
		}
		b.say("workloads: start %s", known.name)
		p, err := known.start(ctx, b.folder, cluster)
		if err != nil {
			return nil, stop, fmt.Errorf("start %s: %w", known.name, err)
		}
		running = append(running, p)
		ways = append(ways, byPeer(known.name, p, pods))
	}
	return ways, stop, nil
}

// way is a way to have a pod: start returns when it is scheduled, settle when nothing is waited for any
// more, end when the pod is gone.
type way struct {
	name               string
	start, settle, end func(ctx context.Context, name string) error
}

// patience is the longest that one step may take; then it is never done.
const patience = 2 * time.Minute

// do takes a step.
func (w way) do(ctx context.Context, step func(context.Context, string) error, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := step(ctx, name); err != nil {
		return fmt.Errorf("%s, %s: %w", w.name, name, err)
	}
	return nil
}

// together takes a step for so many names at once.
func (w way) together(ctx context.Context, step func(context.Context, string) error, count int) error {
	group, ctx := errgroup.WithContext(ctx)
	for n := range count {
		group.Go(func() error { return w.do(ctx, step, fmt.Sprintf("together-%d", n)) })
	}
	return group.Wait()
}

// deployment returns a Deployment of one pod, labelled with the name.
func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &appsv1.Deployment{
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
	}
}

// byPeer names what a peer makes after the peer: the peers share a namespace.
func byPeer(name string, p peers.Peer, pods *podWatch) way {
	own := func(n string) string { return strings.ToLower(name) + "-" + n }
	return way{
		name: name,
		start: func(ctx context.Context, name string) error {
			if err := p.Order(ctx, deployment(own(name))); err != nil {
				return err
			}
			return pods.await(ctx, peers.Namespace+"/"+own(name), true)
		},
		settle: func(ctx context.Context, name string) error { return p.Settle(ctx, own(name)) },
		end: func(ctx context.Context, name string) error {
			if err := p.Cancel(ctx, own(name)); err != nil {
				return err
			}
			return pods.await(ctx, peers.Namespace+"/"+own(name), false)
		},
	}
}

func byHand(member kubernetes.Interface, pods *podWatch) way {
	const namespace = "default"
	deployments := member.AppsV1().Deployments(namespace)
	return way{
		name: "by hand",
		start: func(ctx context.Context, name string) error {
			_, err := deployments.Create(ctx, deployment(name), metav1.CreateOptions{})
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

// bySame makes by hand what Sluice makes.
func bySame(h *hand, pods *podWatch) way {
	namespace := func(name string) string { return "same-" + name }
	return way{
		name: "by hand, the same objects",
		start: func(ctx context.Context, name string) error {
			if err := h.create(ctx, namespace(name)); err != nil {
				return err
			}
			return pods.await(ctx, namespace(name)+"/web", true)
		},
		settle: func(context.Context, string) error { return nil },
		end: func(ctx context.Context, name string) error {
			if err := h.remove(ctx, namespace(name)); err != nil {
				return err
			}
			return pods.await(ctx, namespace(name)+"/web", false)
		},
	}
}

func bySluice(s *sluice, pods *podWatch) way {
	const query = "?accepts_incomplete=true&service_id=workloads&plan_id=pod"
	key := func(id string) string { return v1alpha1.MemberNamespace(v1alpha1.InstanceName("bench", id)) + "/web" }
	return way{
		name: "Sluice",
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
