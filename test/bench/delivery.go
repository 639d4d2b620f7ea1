package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// measureDelivery compares a provision with making the same objects by hand.
func measureDelivery(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "How long does a provision take until it has succeeded, and what of that is Sluice's own?",
		note: "One member cluster, a real control plane on the same machine. By hand means a Go client that creates the very " +
			"objects that Sluice has delivered, one after the other, and, in the second line, waits until the cluster " +
			"enforces the quota, as Sluice does. Rounds alternate.",
		header: []string{"", "median", "p90", "bar", ""},
	}
	s, clusters, err := b.serveWithClusters(ctx, "delivery", 1)
	defer b.release(clusters)
	if err != nil {
		return t, err
	}
	defer s.kill()
	hand, err := newHand(ctx, s, clusters[0], "bench", "small")
	if err != nil {
		return t, err
	}
	rounds := pick(b, 40, 3)
	b.say("delivery: %d rounds", rounds)
	var bySluice, created, inForce latencies
	for n := range rounds {
		began := time.Now()
		id := fmt.Sprintf("instance-%d", n)
		if err := s.provision(ctx, id, 1); err != nil {
			return t, err
		}
		if err := s.await(ctx, id); err != nil {
			return t, err
		}
		bySluice = append(bySluice, time.Since(began))

		began = time.Now()
		namespace := fmt.Sprintf("by-hand-%d", n)
		if err := hand.create(ctx, namespace); err != nil {
			return t, err
		}
		created = append(created, time.Since(began))
		if err := hand.awaitQuota(ctx, namespace); err != nil {
			return t, err
		}
		inForce = append(inForce, time.Since(began))
	}
	const bar = 300 * time.Millisecond
	over := bySluice.median() - created.median()
	t.add("by hand, created", milliseconds(created.median()), milliseconds(created.quantile(0.9)), "", "")
	t.add("by hand, quota in force", milliseconds(inForce.median()), milliseconds(inForce.quantile(0.9)), "", "")
	t.add("Sluice, PUT to succeeded", milliseconds(bySluice.median()), milliseconds(bySluice.quantile(0.9)),
		"≤ "+milliseconds(bar)+" over by hand, created", fmt.Sprintf("%s (%+.0f ms)", verdict(over <= bar), over.Seconds()*1000))
	return t, nil
}

// measureClusters measures whether delivery to more clusters takes more time.
func measureClusters(ctx context.Context, b *bench) (table, error) {
	t := table{
		question: "What do more clusters cost?",
		note: "One instance on so many member clusters, each a real control plane; all of them share this machine's cores with " +
			"Sluice, so that linear is the best there can be.",
		header: []string{"clusters", "PUT to succeeded, median", "a cluster", "bar", ""},
	}
	most := pick(b, 8, 2)
	s, clusters, err := b.serveWithClusters(ctx, "clusters", most)
	defer b.release(clusters)
	if err != nil {
		return t, err
	}
	defer s.kill()
	var single time.Duration
	for count := 1; count <= most; count *= 2 {
		b.say("clusters: %d", count)
		var all latencies
		for n := range pick(b, 10, 2) {
			began := time.Now()
			id := fmt.Sprintf("instance-%d-%d", count, n)
			if err := s.provision(ctx, id, count); err != nil {
				return t, err
			}
			if err := s.await(ctx, id); err != nil {
				return t, err
			}
			all = append(all, time.Since(began))
		}
		each := all.median() / time.Duration(count)
		if count == 1 {
			single = each
			t.add("1", milliseconds(all.median()), milliseconds(each), "", "")
			continue
		}
		t.add(fmt.Sprint(count), milliseconds(all.median()), milliseconds(each), "linear", verdict(each <= single))
	}
	return t, nil
}

// serveWithClusters starts member clusters and a Sluice that has them. The clusters
// that were started are returned in any case, to be released.
func (b *bench) serveWithClusters(ctx context.Context, name string, count int) (*sluice, []*controlplane.ControlPlane, error) {
	clusters := b.idle
	b.idle = nil
	for n := len(clusters); n < count; n++ {
		b.say("%s: start control plane %d of %d", name, n+1, count)
		cluster, err := controlplane.New(ctx, controlplane.Options{
			Name: fmt.Sprintf("member-%d", n), Nodes: []controlplane.Node{{Name: "node", CPU: "64", Memory: "256Gi", Pods: "1000"}},
		})
		if err != nil {
			return nil, clusters, err
		}
		clusters = append(clusters, cluster)
	}
	s, err := b.serveNew(ctx, name)
	if err != nil {
		return nil, clusters, err
	}
	for n, cluster := range clusters[:count] {
		file := filepath.Join(b.folder, fmt.Sprintf("%s-%d.kubeconfig", name, n))
		if err := os.WriteFile(file, cluster.Kubeconfig(), 0o600); err != nil {
			return nil, clusters, err
		}
		if err := s.operate(ctx, nil, "cluster", "add", fmt.Sprintf("member-%d", n), "--from-kubeconfig", file); err != nil {
			s.kill()
			return nil, clusters, err
		}
	}
	return s, clusters, nil
}

// release ends member clusters. A quick run keeps them for the questions that follow; beside a measurement none is idle.
func (b *bench) release(clusters []*controlplane.ControlPlane) {
	if b.quick {
		b.idle = clusters
		return
	}
	stopAll(clusters)
}

func stopAll(clusters []*controlplane.ControlPlane) {
	for _, cluster := range clusters {
		_ = cluster.Stop() // an end before this one has shown already
	}
}

// hand makes by hand what Sluice makes.
type hand struct {
	objects dynamic.Interface
	kube    kubernetes.Interface
	pattern []patternObject
}

type patternObject struct {
	kind   schema.GroupVersionResource
	object *unstructured.Unstructured
}

// patternKinds are the kinds that Sluice delivers, in the order in which it does. Every instance has the first
// kindsOfAll; the others are of workloads.
var patternKinds = []schema.GroupVersionResource{
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Version: "v1", Resource: "resourcequotas"},
	{Version: "v1", Resource: "limitranges"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
}

const kindsOfAll = 4

var namespaceKind = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// newHand has Sluice deliver an instance of a plan and takes it as the pattern.
func newHand(ctx context.Context, s *sluice, cluster *controlplane.ControlPlane, service, plan string) (*hand, error) {
	if err := s.order(ctx, "pattern", fmt.Sprintf(`{"service_id":%q,"plan_id":%q,"organization_guid":"o","space_guid":"s"}`, service, plan)); err != nil {
		return nil, err
	}
	if err := s.await(ctx, "pattern"); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(cluster.Config())
	config.QPS = -1 // as Sluice has
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	h := &hand{objects: objects, kube: kube}
	name := v1alpha1.MemberNamespace(v1alpha1.InstanceName("bench", "pattern"))
	namespace, err := objects.Resource(namespaceKind).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("find the pattern: %w", err)
	}
	h.pattern = append(h.pattern, patternObject{namespaceKind, plain(namespace)})
	for k, kind := range patternKinds {
		list, err := objects.Resource(kind).Namespace(name).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelInstance})
		if err != nil {
			return nil, fmt.Errorf("find the pattern: %w", err)
		}
		if k < kindsOfAll && len(list.Items) == 0 {
			return nil, fmt.Errorf("find the pattern: Sluice has delivered no %s", kind.Resource)
		}
		for i := range list.Items {
			h.pattern = append(h.pattern, patternObject{kind, plain(&list.Items[i])})
		}
	}
	return h, nil
}

// plain is an object without what the API server adds, and without the label by which Sluice would follow it.
func plain(o *unstructured.Unstructured) *unstructured.Unstructured {
	kept := o.DeepCopy()
	kept.Object["metadata"] = map[string]any{"name": o.GetName()}
	labels := o.GetLabels()
	delete(labels, v1alpha1.LabelHub)
	kept.SetLabels(labels)
	kept.SetAnnotations(o.GetAnnotations())
	delete(kept.Object, "status")
	return kept
}

// create makes a namespace with everything in it.
func (h *hand) create(ctx context.Context, namespace string) error {
	for _, p := range h.pattern {
		o := p.object.DeepCopy()
		client := dynamic.ResourceInterface(h.objects.Resource(p.kind).Namespace(namespace))
		if p.kind == namespaceKind {
			o.SetName(namespace)
			client = h.objects.Resource(p.kind)
		}
		if _, err := client.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("by hand: %w", err)
		}
	}
	return nil
}

// remove deletes a namespace with everything in it, and does not wait for it. As Sluice does, it deletes the pods itself:
// Kubernetes would begin only after five seconds.
func (h *hand) remove(ctx context.Context, namespace string) error {
	if err := h.objects.Resource(namespaceKind).Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return h.kube.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// awaitQuota returns when the cluster enforces the namespace's quota.
func (h *hand) awaitQuota(ctx context.Context, namespace string) error {
	return poll(ctx, 2*time.Millisecond, func(ctx context.Context) error {
		quotas, err := h.kube.CoreV1().ResourceQuotas(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, quota := range quotas.Items {
			if !equality.Semantic.DeepEqual(quota.Spec.Hard, quota.Status.Hard) {
				return fmt.Errorf("quota %s of %s is not in force: %v", quota.Name, namespace, corev1.ResourceList(quota.Status.Hard))
			}
		}
		return nil
	})
}
