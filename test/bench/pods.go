package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

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

// awaitCalm returns when no namespace is being deleted: Kubernetes deletes what else is in one when its pods are gone.
func awaitCalm(ctx context.Context, member kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return poll(ctx, 100*time.Millisecond, func(ctx context.Context) error {
		namespaces, err := member.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range namespaces.Items {
			if !namespaces.Items[i].DeletionTimestamp.IsZero() {
				return fmt.Errorf("namespace %s is being deleted", namespaces.Items[i].Name)
			}
		}
		return nil
	})
}
