package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// deliveredKinds are the kinds of objects, beside namespaces, that make up a delivered
// instance. If one is deleted, the instance is repaired at once; if one is only changed, the
// next periodic check finds it.
var deliveredKinds = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("resourcequotas"),
	corev1.SchemeGroupVersion.WithResource("limitranges"),
	networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
	rbacv1.SchemeGroupVersion.WithResource("roles"),
	rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
}

// rewatch is the delay before a failed watch is tried again.
const rewatch = 30 * time.Second

// watchDelivered calls lost with the name of each instance of this hub of which an object is
// deleted, until the context ends. It reads only metadata and keeps none of it. Deletions while
// there is no watch, and on clusters that do not allow Sluice to watch, are found by the next
// periodic check.
func watchDelivered(ctx context.Context, c metadata.Interface, hub string, lost func(instance string)) {
	ours := labels.Set{v1alpha1.LabelHub: hub}.String()
	for _, resource := range deliveredKinds {
		source := c.Resource(resource)
		follow := func(ctx context.Context) {
			// A list only for the resource version at which to start the watch.
			list, err := source.List(ctx, metav1.ListOptions{LabelSelector: ours, Limit: 1})
			if err != nil {
				return
			}
			from := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = ours
				return source.Watch(ctx, o)
			}}
			events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, from)
			if err != nil {
				return
			}
			defer events.Stop()
			for event := range events.ResultChan() {
				if event.Type == watch.Deleted {
					tellLost(event.Object, lost)
				}
			}
		}
		go wait.UntilWithContext(ctx, follow, rewatch)
	}
}

// tellLost calls lost if a deleted object belongs to an instance, and not to one of its
// bindings.
func tellLost(deleted any, lost func(instance string)) {
	if last, ok := deleted.(cache.DeletedFinalStateUnknown); ok {
		deleted = last.Obj
	}
	object, err := meta.Accessor(deleted)
	if err != nil {
		return
	}
	if l := object.GetLabels(); l[v1alpha1.LabelInstance] != "" && l[v1alpha1.LabelBinding] == "" {
		lost(l[v1alpha1.LabelInstance])
	}
}
