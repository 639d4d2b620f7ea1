package placement

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

// deliveredKinds are the kinds of objects, beside namespaces, by which an instance is delivered.
// Whoever deletes one of them has the instance repaired at once; what is only changed is found
// at the next look.
var deliveredKinds = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("resourcequotas"),
	corev1.SchemeGroupVersion.WithResource("limitranges"),
	networkingv1.SchemeGroupVersion.WithResource("networkpolicies"),
	rbacv1.SchemeGroupVersion.WithResource("roles"),
	rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
}

// rewatch is the time between two tries to watch what cannot be watched.
const rewatch = 30 * time.Second

// watchDelivered calls lost with the name of each instance of this hub of which an object is
// deleted, until the context ends. It reads metadata only and keeps none of it. What is deleted
// while there is no watch, and on clusters that do not let Sluice watch, is found at the next
// look.
func watchDelivered(ctx context.Context, c metadata.Interface, hub string, lost func(instance string)) {
	ours := labels.Set{v1alpha1.LabelHub: hub}.String()
	for _, resource := range deliveredKinds {
		source := c.Resource(resource)
		follow := func(ctx context.Context) {
			// A list only to learn from where to watch.
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

// tellLost calls lost for a deleted object that belongs to an instance, and not to one of its
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
