package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// CollectorMode says what the periodic collection does.
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

// Collector finds what no controller will ever remove: namespaces of instances
// and accounts of bindings that are no longer in the hub. Controllers leave none,
// unless somebody took a finalizer off or restored the hub from a backup; which is
// why it is wise to look at a report first.
//
// It cannot take what is in use. A member cluster is read first and the hub, live,
// after it: as the hub's resource comes before everything made for it, an object
// whose owner the hub does not know then has lost it. And it deletes an object only
// as it was read: an owner that has come back under the same name in the meantime
// has changed the object's owner UID.
type Collector struct {
	// Live reads the hub without a cache.
	Live client.Reader
	// Connections to the member clusters.
	Connections *member.Connections
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub string
	// Mode of the periodic collection; empty means off.
	Mode CollectorMode
	// Period of it; zero means ten minutes.
	Period time.Duration
}

// Remnant is an object on a member cluster that lost its owner.
type Remnant struct {
	Cluster   string `json:"cluster"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Owner is the name of the ServiceInstance or ServiceBinding that is gone.
	Owner string `json:"owner"`
	// Created is when the object was created.
	Created metav1.Time `json:"created"`
	// Removed says that its deletion was accepted.
	Removed bool `json:"removed"`

	object client.Object
}

// Report is the result of one collection.
type Report struct {
	// Remnants by cluster, kind, namespace and name.
	Remnants []Remnant `json:"remnants"`
	// Clusters that were looked at.
	Clusters []string `json:"clusters"`
}

// Collect looks at every member cluster, and removes what it finds if remove is
// set. It blocks until every cluster has answered or failed. Clusters that fail are
// in the error and not in the report, which holds for the others all the same.
func (c *Collector) Collect(ctx context.Context, remove bool) (Report, error) {
	var clusters v1alpha1.MemberClusterList
	if err := c.Live.List(ctx, &clusters, client.InNamespace(c.Namespace)); err != nil {
		return Report{}, fmt.Errorf("list member clusters: %w", err)
	}
	var (
		mu     sync.Mutex
		report Report
		errs   []error
		group  errgroup.Group
	)
	group.SetLimit(collectorConcurrency)
	for _, cluster := range clusters.Items {
		group.Go(func() error {
			remnants, err := c.collectFrom(ctx, &cluster, remove)
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

// collectFrom returns one cluster's remnants, including those that it failed to remove.
func (c *Collector) collectFrom(ctx context.Context, cluster *v1alpha1.MemberCluster, remove bool) ([]Remnant, error) {
	connection, err := c.Connections.Open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	owned, err := c.ownedOn(ctx, connection)
	if err != nil {
		return nil, err
	}
	remnants, err := c.withoutOwner(ctx, owned) // reads the hub, only now
	if err != nil {
		return nil, err
	}
	remnants, err = stillThere(ctx, connection.Client, remnants)
	if err != nil || !remove {
		return remnants, err
	}
	return remnants, removeRemnants(ctx, connection.Client, remnants)
}

// removeRemnants deletes each as it was read, and marks those that it could.
func removeRemnants(ctx context.Context, c client.Client, remnants []Remnant) error {
	var errs []error
	for i := range remnants {
		r := &remnants[i]
		if !r.object.GetDeletionTimestamp().IsZero() {
			continue // on its way out already
		}
		err := tenant.DeleteAsSeen(ctx, c, r.object)
		switch {
		case apierrors.IsConflict(err):
			// It has changed hands or gone since: the next collection sees.
		case err != nil:
			errs = append(errs, fmt.Errorf("delete %s %s/%s: %w", r.Kind, r.Namespace, r.Name, err))
		default:
			r.Removed = true
			log.FromContext(ctx).Info("removed remnant", "cluster", r.Cluster, "kind", r.Kind, "namespace", r.Namespace, "name", r.Name, "owner", r.Owner)
		}
	}
	return errors.Join(errs...)
}

// ownedOn lists what carries the hub's label: instances' namespaces, and the
// accounts of bindings.
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
		err := eachPage(ctx, connection.Client, kind.list, func(o client.Object) {
			owned = append(owned, Remnant{
				Cluster: connection.Cluster, Kind: kindOf(o), Namespace: o.GetNamespace(), Name: o.GetName(),
				Owner: o.GetLabels()[kind.label], Created: o.GetCreationTimestamp(), object: o,
			})
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

// withoutOwner keeps what the hub, read live, has no owner for. A namespace that
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

// namesOf lists the names of all resources of a kind in the hub, without their content.
func (c *Collector) namesOf(ctx context.Context, listKind string) (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(listKind))
	names := map[string]bool{}
	err := eachPage(ctx, c.Live, list, func(o client.Object) { names[o.GetName()] = true }, client.InNamespace(c.Namespace))
	return names, err
}

// eachPage calls do with every item of a list, read page by page.
func eachPage(ctx context.Context, c client.Reader, list client.ObjectList, do func(client.Object), options ...client.ListOption) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := list.DeepCopyObject().(client.ObjectList)
		err := c.List(ctx, page, append(options, client.Limit(o.Limit), client.Continue(o.Continue))...)
		return page, err
	}
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		do(o.(client.Object))
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	return nil
}

// stillThere drops what has gone or changed since it was listed: an owner that is
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
