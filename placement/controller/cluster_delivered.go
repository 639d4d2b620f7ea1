package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// deliveredKinds are the kinds of objects that make up a delivered instance and that Sluice may watch. If one is
// deleted, or if its spec is changed, the instance is repaired at once. Kubernetes counts the changes of specs (metadata.generation) of some kinds only; the next
// periodic check finds the changes of others.
var deliveredKinds = []struct {
	schema.GroupVersionResource
	// works reports whether a workload's health depends on the status of such objects.
	works bool
	// labels of those that count besides the hub's.
	labels labels.Set
}{
	{corev1.SchemeGroupVersion.WithResource("namespaces"), false, nil},
	{corev1.SchemeGroupVersion.WithResource("resourcequotas"), false, nil},
	{corev1.SchemeGroupVersion.WithResource("limitranges"), false, nil},
	{corev1.SchemeGroupVersion.WithResource("services"), false, nil},
	// Kubernetes makes others for Services, with the labels of those.
	{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), false, labels.Set{discoveryv1.LabelManagedBy: v1alpha1.ManagedBy}},
	{networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), false, nil},
	{rbacv1.SchemeGroupVersion.WithResource("rolebindings"), false, nil},
	{autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"), false, nil},
	{workload.HTTPRoutes.GroupVersion().WithResource("httproutes"), true, nil},
	{workload.TLSRoutes.GroupVersion().WithResource("tlsroutes"), true, nil},
	{schema.GroupVersionResource{Group: workload.TLSRoutes.Group, Version: "v1alpha2", Resource: "tlsroutes"}, true, nil}, // see TLSRoutes
	{workload.TCPRoutes.GroupVersion().WithResource("tcproutes"), true, nil},
	{workload.DNSEndpoints.GroupVersion().WithResource("dnsendpoints"), true, nil},
	{appsv1.SchemeGroupVersion.WithResource("deployments"), true, nil},
	{appsv1.SchemeGroupVersion.WithResource("statefulsets"), true, nil},
}

// news receives changes of instances on a cluster. Its functions get the instance's name.
type news struct {
	// lost is called if an object in a namespace was deleted, or if its spec was changed.
	lost func(instance string)
	// ended is called if a namespace is gone.
	ended func(instance string)
	// progressed is called if the standing of an object has changed on which a workload's health depends.
	progressed func(instance string)
}

// rewatch is the delay before a failed watch is tried again.
const rewatch = 30 * time.Second

// watchDelivered reports changes of objects of this hub's instances, until the context ends. It reads
// only metadata, except of kinds on whose status a workload's health depends, and keeps no objects. The periodic check
// finds the other changes: those while there is no watch, and those on clusters that do not allow Sluice to watch.
func watchDelivered(ctx context.Context, c clients, hub string, tell news) {
	for _, kind := range deliveredKinds {
		ours := labels.Merge(kind.labels, labels.Set{v1alpha1.LabelHub: hub}).String()
		names, objects := c.metadata.Resource(kind.GroupVersionResource), c.dynamic.Resource(kind.GroupVersionResource)
		follow := func(ctx context.Context) {
			// A list only for the resource version at which to start the watch.
			list, err := names.List(ctx, metav1.ListOptions{LabelSelector: ours, Limit: 1})
			if err != nil {
				return
			}
			from := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = ours
				if kind.works {
					return objects.Watch(ctx, o)
				}
				return names.Watch(ctx, o)
			}}
			events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, from)
			if err != nil {
				return
			}
			defer events.Stop()
			known := map[types.UID]seen{}
			for event := range events.ResultChan() {
				tell.of(event, known)
			}
		}
		go wait.UntilWithContext(ctx, follow, rewatch)
	}
}

// seen is the part of an object that a watch keeps.
type seen struct {
	generation int64
	// standing of an object on which a workload's health depends.
	standing string
}

// of calls the function that an event concerns. known are the objects that the watch has seen.
func (n news) of(event watch.Event, known map[types.UID]seen) {
	o, err := meta.Accessor(event.Object)
	if err != nil {
		return // an error of the watch, which starts again
	}
	before, isKnown := known[o.GetUID()]
	now := seen{generation: o.GetGeneration()}
	if object, whole := event.Object.(*unstructured.Unstructured); whole {
		now.standing = standing(object)
	}
	switch event.Type {
	case watch.Deleted:
		delete(known, o.GetUID())
		if o.GetNamespace() == "" {
			tellOwner(event.Object, n.ended)
		} else {
			tellOwner(event.Object, n.lost)
		}
		return
	case watch.Modified:
		if now.generation > 0 && (!isKnown || before.generation != now.generation) {
			tellOwner(event.Object, n.lost)
		}
		if before.standing != now.standing {
			tellOwner(event.Object, n.progressed)
		}
	case watch.Added: // whoever has created it has its status
	default:
		return
	}
	known[o.GetUID()] = now
}

// standing returns a text for the part of an object's status on which a workload's health depends.
func standing(o *unstructured.Unstructured) string {
	if workload.IsRoute(o) {
		if reason, message := workload.RouteProblem(o); reason != "" {
			return reason + message
		}
		return "served"
	}
	result, err := status.Compute(o)
	if err != nil {
		return err.Error()
	}
	ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
	return fmt.Sprint(result.Status, ready)
}

// tellOwner calls tell if an object belongs to an instance, and not to one of its bindings.
func tellOwner(of any, tell func(instance string)) {
	if last, ok := of.(cache.DeletedFinalStateUnknown); ok {
		of = last.Obj
	}
	object, err := meta.Accessor(of)
	if err != nil {
		return
	}
	if l := object.GetLabels(); l[v1alpha1.LabelInstance] != "" && l[v1alpha1.LabelBinding] == "" {
		tell(l[v1alpha1.LabelInstance])
	}
}
