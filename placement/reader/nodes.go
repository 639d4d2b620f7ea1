package reader

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	coreinformers "k8s.io/client-go/informers/core/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// Nodes is the reader of a cluster's nodes, storage classes, devices, running pods, namespaces of this hub's
// instances, and quotas of the instances of all hubs. It watches them, each stripped to the fields that are
// used.
type Nodes struct {
	stop                             context.CancelFunc
	nodes, pods, namespaces, classes cache.SharedIndexInformer
	// quotas may be hidden from Sluice.
	quotas *optional
	// deviceClasses, slices and claims are of resource.k8s.io, which the cluster may not serve. Devices count while
	// all three are read.
	deviceClasses, slices, claims *optional
	selections                    selections
	options                       NodesOptions
}

// NodesOptions configure Nodes.
type NodesOptions struct {
	Kube kubernetes.Interface
	// HubID labels the objects of this hub.
	HubID string
	// Inventory has the reservations on the Cluster. Pods of the instances that have one are not foreign.
	Inventory *placement.Inventory
	Cluster   string
	// Changed is called after changes; it must not block.
	Changed func()
}

// NewNodes returns a reader that watches the cluster until it is closed, or the context ends.
func NewNodes(ctx context.Context, o NodesOptions) *Nodes {
	ctx, stop := context.WithCancel(ctx)
	running := func(l *metav1.ListOptions) {
		inPages(l)
		l.FieldSelector = fields.AndSelectors(
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String()
	}
	ours := func(l *metav1.ListOptions) {
		inPages(l)
		l.LabelSelector = labels.Set{v1alpha1.LabelHub: o.HubID}.String()
	}
	ofHubs := func(l *metav1.ListOptions) {
		inPages(l)
		l.LabelSelector = v1alpha1.LabelHub
	}
	n := &Nodes{
		stop: stop, options: o,
		nodes:      coreinformers.NewFilteredNodeInformer(o.Kube, 0, nil, inPages),
		pods:       coreinformers.NewFilteredPodInformer(o.Kube, metav1.NamespaceAll, 0, nil, running),
		namespaces: coreinformers.NewFilteredNamespaceInformer(o.Kube, 0, nil, ours),
		classes:    storageinformers.NewStorageClassInformer(o.Kube, 0, nil),
		quotas: newOptional(coreinformers.NewFilteredResourceQuotaInformer(o.Kube, metav1.NamespaceAll, 0, nil, ofHubs),
			apierrors.IsForbidden, o.Changed),

		deviceClasses: newOptional(resourceinformers.NewDeviceClassInformer(o.Kube, 0, nil), isNotServed, o.Changed),
		slices:        newOptional(resourceinformers.NewFilteredResourceSliceInformer(o.Kube, 0, nil, inPages), isNotServed, o.Changed),
		claims:        newOptional(resourceinformers.NewFilteredResourceClaimInformer(o.Kube, metav1.NamespaceAll, 0, nil, inPages), isNotServed, o.Changed),
	}
	changed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { o.Changed() },
		UpdateFunc: func(any, any) { o.Changed() },
		DeleteFunc: func(any) { o.Changed() },
	}
	for _, informer := range []cache.SharedIndexInformer{n.nodes, n.pods, n.namespaces, n.classes, n.quotas, n.deviceClasses, n.slices, n.claims} {
		// Both fail only if the informer has been started.
		_ = informer.SetTransform(strip)
		_, _ = informer.AddEventHandler(changed)
		go informer.RunWithContext(ctx)
	}
	return n
}

// inPages makes an API server keep the limit of a list, which it ignores when the list may be as old as its cache. In one piece
// the pods of a large cluster are more than Sluice reads (package answers).
func inPages(l *metav1.ListOptions) {
	if l.Limit > 0 && l.ResourceVersion == "0" {
		l.ResourceVersion = ""
	}
}

// longestResource is the length of the longest name of a resource: a subdomain, a slash and a label.
const longestResource = validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123LabelMaxLength

// isNotServed reports whether an error means that the cluster does not serve a resource, or not to Sluice.
func isNotServed(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

// Read returns what the nodes have now. The error says that not everything has been listed yet, that the status of a cluster
// has no room for it, or that there is more to select devices by than a reading takes: the nodes may be a stranger's.
func (n *Nodes) Read(ctx context.Context) (Reading, error) {
	if slices.ContainsFunc(n.synced(), func(synced cache.InformerSynced) bool { return !synced() }) {
		return Reading{}, &UnknownError{ReasonSyncing, "reading its nodes, pods, namespaces and storage classes: not complete yet"}
	}
	s := n.options.Inventory.Snapshot()
	// A namespace with an instance's label counts as reserved only if the instance has a reservation there, or is
	// reached through this cluster, so that its pods run on others. What remains of a deleted instance is foreign
	// use, and so is an instance that a hub does not know which was restored from a backup.
	used := map[string]bool{}
	for _, namespace := range listed[*corev1.Namespace](n.namespaces) {
		instance := namespace.Labels[v1alpha1.LabelInstance]
		used[namespace.Name] = instance != "" && v1alpha1.MemberNamespace(instance) == namespace.Name && s.Uses(instance, n.options.Cluster)
	}
	reserved := func(namespace string) bool { return used[namespace] }
	// The namespaces for pods that come over peerings of a hub have a quota of no instance before any pod runs there.
	// Without the quotas, all such pods count as this hub's.
	known, ours := n.quotas.isRead(), map[string]bool{}
	isolated := func(namespace string) bool { return !known || ours[namespace] }
	var quotas []*corev1.ResourceQuota
	for _, q := range listed[*corev1.ResourceQuota](n.quotas) {
		own := q.Labels[v1alpha1.LabelHub] == n.options.HubID
		switch {
		case !known: // it may be gone
		case q.Labels[v1alpha1.LabelInstance] == "":
			ours[q.Namespace] = ours[q.Namespace] || own
		case !own || !reserved(q.Namespace):
			quotas = append(quotas, q)
		}
	}
	selecting, cancel := context.WithTimeout(ctx, mostSelecting)
	defer cancel()
	r := usageOf(listed[*corev1.Node](n.nodes), listed[*corev1.Pod](n.pods), quotas, n.devices(selecting, s), reserved, isolated)
	if selecting.Err() != nil {
		return Reading{}, &UnknownError{ReasonSyncing, "evaluating the selectors of its device classes: not complete yet"}
	}
	for _, class := range listed[*storagev1.StorageClass](n.classes) {
		r.StorageClasses = append(r.StorageClasses, class.Name)
	}
	slices.Sort(r.StorageClasses)
	if err := r.check(); err != nil {
		return Reading{}, &UnknownError{ReasonInvalid, err.Error()}
	}
	return r, nil
}

// check refuses more names than an answer of a server may have, and longer ones than Kubernetes has: the nodes may be a
// stranger's.
func (r *Reading) check() error {
	if resources := max(len(r.Capacity), len(r.Allocatable), len(r.Foreign)); max(resources, len(r.StorageClasses)) > mostNames {
		return fmt.Errorf("it has %d resources and %d storage classes, and at most %d of each are allowed", resources, len(r.StorageClasses), mostNames)
	}
	if kinds := max(len(r.Architectures), len(r.OperatingSystems)); kinds > mostKinds {
		return fmt.Errorf("its nodes have %d architectures and %d operating systems, and at most %d of each are allowed", len(r.Architectures), len(r.OperatingSystems), mostKinds)
	}
	names, resources := slices.Concat(r.StorageClasses, r.Architectures, r.OperatingSystems), []string{}
	for _, class := range r.DeviceClasses {
		names = append(names, class.Name, class.ExtendedResource)
	}
	for _, amounts := range []corev1.ResourceList{r.Capacity, r.Allocatable, r.Foreign} {
		for name := range amounts {
			resources = append(resources, string(name))
		}
	}
	return cmp.Or(checkLengths(names, validation.DNS1123SubdomainMaxLength), checkLengths(resources, longestResource))
}

// checkLengths refuses names that are longer than most characters.
func checkLengths(names []string, most int) error {
	slices.Sort(names) // always the same error
	for _, name := range names {
		if len(name) > most {
			return fmt.Errorf("the name %s has %d characters, and at most %d are allowed", quoted(name), len(name), most)
		}
	}
	return nil
}

// devices returns what is read of devices. Classes that the provider hides count as not sold once no instance has any.
func (n *Nodes) devices(ctx context.Context, s *placement.Snapshot) devices {
	if !n.deviceClasses.isRead() || !n.slices.isRead() || !n.claims.isRead() {
		return devices{}
	}
	hidden := map[string]bool{}
	if cluster := s.Cluster(n.options.Cluster); cluster != nil && cluster.Sell != nil {
		for _, name := range cluster.Sell.Hide {
			if class, is := v1alpha1.DeviceClassOf(name); is {
				hidden[class] = true
			}
		}
	}
	if len(hidden) > 0 {
		for _, held := range s.Reservations(n.options.Cluster) {
			for name := range held.Resources {
				if class, is := v1alpha1.DeviceClassOf(name); is {
					delete(hidden, class)
				}
			}
		}
	}
	n.selections.begin()
	return devices{
		classes: listed[*resourcev1.DeviceClass](n.deviceClasses), slices: listed[*resourcev1.ResourceSlice](n.slices),
		claims: listed[*resourcev1.ResourceClaim](n.claims),
		selects: func(class *resourcev1.DeviceClass, slice *resourcev1.ResourceSlice) selection {
			return n.selections.of(ctx, class, slice)
		},
		hidden: func(class string) bool { return hidden[class] },
	}
}

// Wait blocks until everything has been listed once, or the context ends.
func (n *Nodes) Wait(ctx context.Context) {
	cache.WaitForCacheSync(ctx.Done(), n.synced()...)
}

// Close ends the watches.
func (n *Nodes) Close(bool) { n.stop() }

func (n *Nodes) synced() []cache.InformerSynced {
	return []cache.InformerSynced{
		n.nodes.HasSynced, n.pods.HasSynced, n.namespaces.HasSynced, n.classes.HasSynced,
		n.quotas.isAnswered, n.deviceClasses.isAnswered, n.slices.isAnswered, n.claims.isAnswered,
	}
}

// listed returns an informer's objects, in no order.
func listed[T any](informer cache.SharedIndexInformer) []T {
	objects := informer.GetStore().List()
	out := make([]T, 0, len(objects))
	for _, object := range objects {
		out = append(out, object.(T))
	}
	return out
}
