package catalog

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Feed keeps a Catalog up to date with the hub, on every replica.
type Feed struct {
	// Cache of the manager.
	Cache ctrlcache.Cache
	// Namespace of the hub that holds the resources.
	Namespace string
	// Charts that the hub keeps.
	Charts workload.Charts
	// Catalog that the feed updates.
	Catalog *Catalog
}

// Start watches the service offerings, and the proven facts about member clusters and the
// schemas of their classes. It blocks until ctx ends.
func (f *Feed) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a rebuild is already due
		}
	}
	read, stop, err := f.follow(ctx, &v1alpha1.ServiceOffering{}, notify, nil)
	if err != nil {
		return fmt.Errorf("watch service offerings: %w", err)
	}
	defer stop()
	clustersRead, stop, err := f.follow(ctx, &v1alpha1.MemberCluster{}, notify, func(before, now any) bool {
		return equality.Semantic.DeepEqual(readOf(before.(*v1alpha1.MemberCluster)), readOf(now.(*v1alpha1.MemberCluster)))
	})
	if err != nil {
		return fmt.Errorf("watch member clusters: %w", err)
	}
	defer stop()
	credentialsRead, stop, err := f.follow(ctx, &v1alpha1.SelfDescription{}, notify, nil)
	if err != nil {
		return fmt.Errorf("watch self-descriptions: %w", err)
	}
	defer stop()
	// Wait only for the offerings: the manager's cache may still have to read many instances,
	// clusters and credentials. Facts and schemas are added to the catalog once those are read.
	if !cache.WaitForCacheSync(ctx.Done(), read) {
		return nil // ctx has ended
	}
	ordersUpstream, err := f.ordersUpstream(ctx)
	if err != nil {
		return err
	}
	// The candidates' schemas say which parameters are hidden, so no order is taken without them.
	if ordersUpstream && !cache.WaitForCacheSync(ctx.Done(), clustersRead) {
		return nil
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), clustersRead, credentialsRead) {
			notify()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if err := f.rebuild(ctx, clustersRead(), credentialsRead()); err != nil {
				return err
			}
		}
	}
}

// follow calls notify when an object of a kind changes, except for updates between states
// that alike treats as equal. It does not wait for the cache; read reports whether all
// objects have been read.
func (f *Feed) follow(ctx context.Context, kind client.Object, notify func(), alike func(before, now any) bool) (read cache.InformerSynced, stop func(), err error) {
	informer, err := f.Cache.GetInformer(ctx, kind, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return nil, nil, err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() },
		UpdateFunc: func(before, now any) {
			if alike == nil || !alike(before, now) {
				notify()
			}
		},
		DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		return nil, nil, err
	}
	return informer.HasSynced, func() { _ = informer.RemoveEventHandler(registration) }, nil
}

// readOf returns the parts of a cluster from which the catalog is built. A cluster's status changes with every probe.
func readOf(c *v1alpha1.MemberCluster) (read v1alpha1.MemberCluster) {
	read.Name, read.DeletionTimestamp, read.Labels, read.Spec = c.Name, c.DeletionTimestamp, c.Labels, c.Spec
	read.Status.Architectures, read.Status.OperatingSystems = c.Status.Architectures, c.Status.OperatingSystems
	read.Status.Claims, read.Status.Classes = c.Status.Claims, c.Status.Classes
	if admitted(c) {
		read.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAdmitted, Status: metav1.ConditionTrue}}
	}
	if b := c.Status.Broker; b != nil {
		read.Status.Broker = &v1alpha1.UpstreamBrokerStatus{Plans: b.Plans, Schemas: b.Schemas, Sluice: chainOf(b.Sluice)}
	}
	return read
}

// chainOf returns of a broker which Sluices are behind its plans, and their regions.
func chainOf(is *v1alpha1.UpstreamSluice) *v1alpha1.UpstreamSluice {
	if is == nil {
		return nil
	}
	read := &v1alpha1.UpstreamSluice{}
	for _, p := range is.Plans {
		if p.Market != nil {
			p.Market = &v1alpha1.MarketPlan{Regions: p.Market.Regions}
		}
		read.Plans = append(read.Plans, p)
	}
	return read
}

// ordersUpstream reports whether an offering sells services of other brokers.
func (f *Feed) ordersUpstream(ctx context.Context) (bool, error) {
	var list v1alpha1.ServiceOfferingList
	if err := f.Cache.List(ctx, &list, client.InNamespace(f.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list service offerings: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(o v1alpha1.ServiceOffering) bool {
		return o.Status.Accepted != nil && slices.ContainsFunc(o.Status.Accepted.Plans, func(p v1alpha1.Plan) bool { return p.Upstream != nil })
	}), nil
}

func (f *Feed) rebuild(ctx context.Context, withClusters, withCredentials bool) error {
	var list v1alpha1.ServiceOfferingList
	if err := f.Cache.List(ctx, &list, client.InNamespace(f.Namespace)); err != nil {
		return fmt.Errorf("list service offerings: %w", err)
	}
	var clusters v1alpha1.MemberClusterList
	if withClusters {
		if err := f.Cache.List(ctx, &clusters, client.InNamespace(f.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list member clusters: %w", err)
		}
	}
	for i := range clusters.Items {
		clusters.Items[i] = readOf(&clusters.Items[i])
	}
	before := f.Catalog.Snapshot()
	snapshot, err := Build(list.Items, clusters.Items, f.Charts, before)
	if err != nil {
		log.FromContext(ctx).Error(err, "Some service offerings cannot be served")
	}
	if withClusters && withCredentials {
		if err := f.prove(ctx, snapshot, clusters.Items); err != nil {
			return err
		}
	}
	if !f.Catalog.Loaded() || snapshot.Revision() != before.Revision() {
		log.FromContext(ctx).Info("Catalog changed", "revision", snapshot.Revision(), "offerings", len(snapshot.byID), "plans", len(snapshot.plans))
	}
	f.Catalog.Replace(snapshot)
	return nil
}

// prove adds the facts from the clusters and from the credentials in the cache.
func (f *Feed) prove(ctx context.Context, snapshot *Snapshot, clusters []v1alpha1.MemberCluster) error {
	var credentials v1alpha1.SelfDescriptionList
	if err := f.Cache.List(ctx, &credentials, client.InNamespace(f.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list self-descriptions: %w", err)
	}
	return snapshot.prove(newEvidence(clusters, credentials.Items))
}
