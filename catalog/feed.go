package catalog

import (
	"context"
	"fmt"

	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Feed keeps a Catalog up to date with the hub. It is a manager.Runnable that
// runs on every replica.
type Feed struct {
	// Cache of the manager.
	Cache ctrlcache.Cache
	// Namespace of the hub that holds the resources.
	Namespace string
	// Catalog to keep.
	Catalog *Catalog
}

// NeedLeaderElection says that every replica serves the catalog.
func (f *Feed) NeedLeaderElection() bool { return false }

// Start follows the service offerings until ctx ends.
func (f *Feed) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // a rebuild is due anyway
		}
	}
	informer, err := f.Cache.GetInformer(ctx, &v1alpha1.ServiceOffering{})
	if err != nil {
		return fmt.Errorf("watch service offerings: %w", err)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
		DeleteFunc: func(any) { notify() },
	})
	if err != nil {
		return fmt.Errorf("watch service offerings: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	// Only the offerings: the manager's cache may have many instances still to read.
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil // ctx has ended
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			if err := f.rebuild(ctx); err != nil {
				return err
			}
		}
	}
}

func (f *Feed) rebuild(ctx context.Context) error {
	var list v1alpha1.ServiceOfferingList
	if err := f.Cache.List(ctx, &list, client.InNamespace(f.Namespace)); err != nil {
		return fmt.Errorf("list service offerings: %w", err)
	}
	before := f.Catalog.Snapshot()
	snapshot, err := Build(list.Items, before)
	if err != nil {
		log.FromContext(ctx).Error(err, "Some service offerings cannot be served")
	}
	if !f.Catalog.Loaded() || snapshot.Revision() != before.Revision() {
		log.FromContext(ctx).Info("Catalog changed", "revision", snapshot.Revision(), "offerings", len(snapshot.byID), "plans", len(snapshot.plans))
	}
	f.Catalog.Replace(snapshot)
	return nil
}
