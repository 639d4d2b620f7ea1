package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/pages"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// CollectorMode selects the action of the periodic collection.
type CollectorMode string

// Modes of the collector.
const (
	CollectorOff    CollectorMode = "off"
	CollectorReport CollectorMode = "report"
	CollectorRemove CollectorMode = "remove"
)

const (
	defaultCollectorPeriod = 10 * time.Minute
	collectorConcurrency   = 8
)

// Collector finds objects that no controller will ever remove: namespaces of instances and
// accounts of bindings whose owner is no longer in the hub. Controllers leave none, unless
// somebody removed a finalizer or restored the hub from a backup; see Hold. So read a report before
// you let it remove anything.
//
// It cannot delete an object in use. It reads a member cluster first, and the hub, live, after
// it. The hub's resource is created before everything made for it. So if the hub does not know
// an object's owner then, the owner is gone. It deletes an object only in the state that it
// read: if an owner of the same name was created in the meantime, the object's owner UID has
// changed.
type Collector struct {
	// Live reads the hub without a cache.
	Live client.Reader
	// Connections to the member clusters.
	Connections *member.Connections
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
	// Hold returns an error that says why nothing may be removed now; nil means that nothing is held.
	Hold func(context.Context) error
	// Mode of the periodic collection; empty means off.
	Mode CollectorMode
	// Period between two collections; zero means ten minutes.
	Period time.Duration
}

// Remnant is an object on a member cluster whose owner is gone.
type Remnant struct {
	Cluster   string `json:"cluster"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Owner is the name of the ServiceInstance or ServiceBinding that is gone.
	Owner string `json:"owner"`
	// Elsewhere reports whether the owner is in the hub, but on other clusters, as after an instance has moved and the
	// hub was restored from a backup before that. Such objects are found only while removals are held, and never removed.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Created is when the object was created.
	Created metav1.Time `json:"created"`
	// Size is the resources that the quotas in a namespace allow.
	Size corev1.ResourceList `json:"size,omitempty"`
	// Removed reports whether its deletion was accepted.
	Removed bool `json:"removed"`

	object client.Object
}

// Order returns the sealed order that a namespace carries; empty if it carries none. See package carried.
func (r *Remnant) Order() string { return r.object.GetAnnotations()[v1alpha1.AnnotationOrder] }

// IsEnding reports whether the object is being deleted.
func (r *Remnant) IsEnding() bool { return !r.object.GetDeletionTimestamp().IsZero() }

// Report is the result of one collection.
type Report struct {
	// Remnants by cluster, kind, namespace and name.
	Remnants []Remnant `json:"remnants"`
	// Clusters that were checked.
	Clusters []string `json:"clusters"`
}

// Collect checks every member cluster, and removes the remnants if remove is set; if they are held, it does
// nothing, and returns the error of Hold. It blocks until every cluster has answered or failed. Clusters that fail are in the error and not in
// the report, which is valid for the others.
func (c *Collector) Collect(ctx context.Context, remove bool) (Report, error) {
	if remove {
		if err := c.held(ctx); err != nil {
			return Report{}, err
		}
	}
	var clusters v1alpha1.MemberClusterList
	if err := c.Live.List(ctx, &clusters, client.InNamespace(c.Namespace)); err != nil {
		return Report{}, fmt.Errorf("list member clusters: %w", err)
	}
	var (
		mu     sync.Mutex
		report = Report{Remnants: []Remnant{}, Clusters: []string{}} // a script reads them as lists
		errs   []error
		group  errgroup.Group
	)
	group.SetLimit(collectorConcurrency)
	for _, cluster := range clusters.Items {
		if !cluster.HasServer() {
			continue // a broker or a pool, which has no namespaces
		}
		group.Go(func() error {
			remnants, err := c.collectFrom(ctx, &cluster, func(Remnant) bool { return remove })
			mu.Lock()
			defer mu.Unlock()
			report.Remnants = append(report.Remnants, remnants...)
			if err != nil {
				errs = append(errs, fmt.Errorf("collect from %s: %w", cluster.Name, err))
				return nil
			}
			report.Clusters = append(report.Clusters, cluster.Name)
			return nil
		})
	}
	_ = group.Wait() // errors are in errs
	slices.Sort(report.Clusters)
	slices.SortFunc(report.Remnants, func(a, b Remnant) int {
		return slices.Compare([]string{a.Cluster, a.Kind, a.Namespace, a.Name}, []string{b.Cluster, b.Kind, b.Namespace, b.Name})
	})
	return report, errors.Join(errs...)
}

// held returns the error of Hold.
func (c *Collector) held(ctx context.Context) error {
	if c.Hold == nil {
		return nil
	}
	return c.Hold(ctx)
}

// Remove deletes single objects that Collect has found and an operator has chosen, also while removals are held. It looks
// at their clusters and the hub again first, and leaves what has an owner, or is another object, since. It returns what
// it found, and what of it was removed.
func (c *Collector) Remove(ctx context.Context, chosen []Remnant) (found []Remnant, err error) {
	clusters := map[string]bool{}
	as := map[types.UID]Remnant{}
	for _, r := range chosen {
		clusters[r.Cluster], as[r.object.GetUID()] = true, r
	}
	isChosen := func(r Remnant) bool {
		was, is := as[r.object.GetUID()]
		return is && was.Elsewhere == r.Elsewhere // or else its instance has been ordered again
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		var cluster v1alpha1.MemberCluster
		err := c.Live.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &cluster)
		var all []Remnant
		if err == nil {
			all, err = c.collectFrom(ctx, &cluster, isChosen)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove from %s: %w", name, err))
		}
		found = append(found, slices.DeleteFunc(all, func(r Remnant) bool { return !isChosen(r) })...)
	}
	return found, errors.Join(errs...)
}

// collectFrom returns one cluster's remnants, including those that it failed to remove.
func (c *Collector) collectFrom(ctx context.Context, cluster *v1alpha1.MemberCluster, remove func(Remnant) bool) ([]Remnant, error) {
	connection, err := c.Connections.Open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	owned, err := c.ownedOn(ctx, connection)
	if err != nil {
		return nil, err
	}
	remnants, err := c.withoutOwner(ctx, owned) // reads the hub, only after the cluster
	if err != nil {
		return nil, err
	}
	if c.held(ctx) != nil {
		moved, err := c.elsewhere(ctx, owned)
		if err != nil {
			return nil, err
		}
		remnants = append(remnants, moved...)
	}
	remnants, err = stillThere(ctx, connection.Client, remnants)
	if err != nil {
		return remnants, err
	}
	if err := measure(ctx, connection.Client, remnants); err != nil {
		return remnants, err
	}
	return remnants, removeRemnants(ctx, connection.Client, remnants, remove)
}

// measure adds the sizes of namespaces.
func measure(ctx context.Context, c client.Reader, remnants []Remnant) error {
	for i := range remnants {
		r := &remnants[i]
		if r.Kind != "Namespace" {
			continue
		}
		err := pages.Each(ctx, c, &corev1.ResourceQuotaList{}, func(o client.Object) error {
			for name, amount := range o.(*corev1.ResourceQuota).Spec.Hard {
				if isSize(name) {
					r.Size = withAmount(r.Size, name, amount)
				}
			}
			return nil
		}, client.InNamespace(r.Name), client.HasLabels{v1alpha1.LabelInstance})
		if apierrors.IsForbidden(err) {
			continue // a cluster that was registered by an earlier version
		}
		if err != nil {
			return fmt.Errorf("read the quotas in %s: %w", r.Name, err)
		}
	}
	return nil
}

// isSize reports whether a limit of a quota is one of the amounts that an instance is sold by.
func isSize(name corev1.ResourceName) bool {
	return name == corev1.ResourceRequestsCPU || name == corev1.ResourceRequestsMemory || name == corev1.ResourceRequestsStorage
}

func withAmount(amounts corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) corev1.ResourceList {
	if amounts == nil {
		amounts = corev1.ResourceList{}
	}
	sum := amounts[name]
	sum.Add(amount)
	amounts[name] = sum
	return amounts
}

// removeRemnants deletes those remnants that remove selects, in the state in which they were read, and marks the deleted
// ones.
func removeRemnants(ctx context.Context, c client.Client, remnants []Remnant, remove func(Remnant) bool) error {
	var errs []error
	for i := range remnants {
		r := &remnants[i]
		if r.IsEnding() || !remove(*r) {
			continue
		}
		err := tenant.DeleteAsSeen(ctx, c, r.object)
		switch {
		case apierrors.IsConflict(err):
			// It has a new owner or is gone since: left to the next collection.
		case err != nil:
			errs = append(errs, fmt.Errorf("delete %s %s/%s: %w", r.Kind, r.Namespace, r.Name, err))
		default:
			r.Removed = true
			log.FromContext(ctx).Info("removed remnant", "cluster", r.Cluster, "kind", r.Kind, "namespace", r.Namespace, "name", r.Name, "owner", r.Owner)
		}
	}
	return errors.Join(errs...)
}

// ownedOn lists the objects with the hub's label: instances' namespaces, and the accounts of
// bindings.
func (c *Collector) ownedOn(ctx context.Context, connection *member.Connection) ([]Remnant, error) {
	var owned []Remnant
	for _, kind := range []struct {
		list  client.ObjectList
		label string
	}{
		{&corev1.NamespaceList{}, v1alpha1.LabelInstance},
		{&corev1.ServiceAccountList{}, v1alpha1.LabelBinding},
		{&rbacv1.RoleBindingList{}, v1alpha1.LabelBinding},
	} {
		err := pages.Each(ctx, connection.Client, kind.list, func(o client.Object) error {
			owned = append(owned, Remnant{
				Cluster: connection.Cluster, Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(),
				Owner: o.GetLabels()[kind.label], Created: o.GetCreationTimestamp(), object: o,
			})
			return nil
		}, client.MatchingLabels{v1alpha1.LabelHub: c.Hub}, client.HasLabels{kind.label})
		if err != nil {
			return nil, err
		}
	}
	return owned, nil
}

func kindOf(o client.Object) string {
	switch o.(type) {
	case *corev1.Namespace:
		return "Namespace"
	case *corev1.ServiceAccount:
		return "ServiceAccount"
	default:
		return "RoleBinding"
	}
}

// withoutOwner returns the objects whose owner is not in the hub, read live. A namespace that
// is a remnant stands for everything in it.
func (c *Collector) withoutOwner(ctx context.Context, owned []Remnant) ([]Remnant, error) {
	instances, err := c.namesOf(ctx, "ServiceInstanceList")
	if err != nil {
		return nil, err
	}
	bindings, err := c.namesOf(ctx, "ServiceBindingList")
	if err != nil {
		return nil, err
	}
	var remnants []Remnant
	gone := map[string]bool{}
	for _, o := range owned { // namespaces first, as listed
		owners := bindings
		if o.Kind == "Namespace" {
			owners = instances
		}
		if owners[o.Owner] || gone[o.Namespace] {
			continue
		}
		if o.Kind == "Namespace" {
			gone[o.Name] = true
		}
		remnants = append(remnants, o)
	}
	return remnants, nil
}

// elsewhere returns the namespaces of instances that are in the hub, read live, but not on the namespace's cluster.
func (c *Collector) elsewhere(ctx context.Context, owned []Remnant) ([]Remnant, error) {
	namespaces := map[string]Remnant{} // by instance
	for _, o := range owned {
		if o.Kind == "Namespace" {
			namespaces[o.Owner] = o
		}
	}
	var found []Remnant
	err := pages.Each(ctx, c.Live, &v1alpha1.ServiceInstanceList{}, func(o client.Object) error {
		instance := o.(*v1alpha1.ServiceInstance)
		namespace, has := namespaces[instance.Name]
		isThere := slices.ContainsFunc(instance.Status.Everywhere(), func(p *v1alpha1.Placement) bool { return p.Cluster == namespace.Cluster })
		if has && !isThere {
			namespace.Elsewhere = true
			found = append(found, namespace)
		}
		return nil
	}, client.InNamespace(c.Namespace))
	return found, err
}

// namesOf lists the names of all resources of a kind in the hub, without their content.
func (c *Collector) namesOf(ctx context.Context, listKind string) (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(listKind))
	names := map[string]bool{}
	err := pages.Each(ctx, c.Live, list, func(o client.Object) error {
		names[o.GetName()] = true
		return nil
	}, client.InNamespace(c.Namespace))
	return names, err
}

// stillThere drops objects that have gone or changed since they were listed: an owner that is
// being removed in the ordinary way leaves the hub last.
func stillThere(ctx context.Context, c client.Reader, remnants []Remnant) ([]Remnant, error) {
	var there []Remnant
	for _, r := range remnants {
		now := r.object.DeepCopyObject().(client.Object)
		err := c.Get(ctx, client.ObjectKeyFromObject(r.object), now)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read %s %s/%s: %w", r.Kind, r.Namespace, r.Name, err)
		}
		if err == nil && now.GetUID() == r.object.GetUID() && now.GetResourceVersion() == r.object.GetResourceVersion() {
			there = append(there, r)
		}
	}
	return there, nil
}
