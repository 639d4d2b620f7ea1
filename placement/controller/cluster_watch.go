package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// target is the access of a watch to a member cluster.
type target struct {
	// broker that the member cluster stands for; nil if it is a cluster, which has everything else.
	broker     *osbclient.Client
	connection *member.Connection
	kube       kubernetes.Interface
	metadata   metadata.Interface
	// readyz probes the API server.
	readyz func(context.Context) error
	// keyHash returns the digest of the API server's key, see member.KeyHash.
	keyHash func(context.Context) (string, error)
	// write makes a small write there; nil if Sluice may not write.
	write func(context.Context) error
}

// openTarget returns a function that opens targets over connections, one for each connection.
func openTarget(connections *member.Connections, brokers *osbclient.Brokers) func(context.Context, *v1alpha1.MemberCluster) (target, error) {
	return func(ctx context.Context, cluster *v1alpha1.MemberCluster) (target, error) {
		if brokers != nil && cluster.DriverName() == v1alpha1.DriverOSB {
			broker, err := brokers.Open(ctx, cluster)
			return target{broker: broker}, err
		}
		connection, err := connections.Open(ctx, cluster)
		if err != nil {
			return target{}, err
		}
		config := rest.CopyConfig(connection.Config)
		config.QPS = -1 // watches and a probe every few seconds need no limit
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			return target{}, fmt.Errorf("member cluster %s: build its client: %w", cluster.Name, err)
		}
		names, err := metadata.NewForConfig(config)
		if err != nil {
			return target{}, fmt.Errorf("member cluster %s: build its client: %w", cluster.Name, err)
		}
		opened := target{
			connection: connection, kube: kube, metadata: names,
			readyz: func(ctx context.Context) error {
				return kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
			},
			keyHash: func(ctx context.Context) (string, error) { return member.KeyHash(ctx, config) },
		}
		if !joined(cluster) { // on a joined cluster Sluice only reads
			opened.write = renewLease(kube, connection.Username)
		}
		return opened, nil
	}
}

// uid returns the UID of the cluster.
func (t target) uid(ctx context.Context) (string, error) {
	system, err := t.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(system.UID), nil
}

// clusterWatch is Sluice's knowledge of one member cluster. Passes over one cluster never
// overlap, so only the informers are concurrent.
type clusterWatch struct {
	cluster string
	target  target
	stop    context.CancelFunc
	// informers of the cluster's capacity and its use; none on a management cluster, whose
	// capacity is declared.
	informers []cache.SharedIndexInformer
	nodes, pods, namespaces,
	classes cache.SharedIndexInformer
	// quotas of other hubs' instances; hidden is true while Sluice may not read them.
	quotas cache.SharedIndexInformer
	hidden atomic.Bool

	// opened holds the values with which the target was opened.
	opened opening

	health health
	access access
	writes writes
	// untilThorough is the number of probes until the next thorough one.
	untilThorough int
	// catalog that was read last, if the member cluster stands for a broker.
	catalog *osbclient.Catalog
	// failures of orders at the broker lately; guarded by clusterReconciler.mu.
	failures  []v1alpha1.OrderFailure
	nextProbe time.Time
	wrote     time.Time
}

// opening holds the values on which a target depends, beside the access of its connection. If one
// changes, the target is opened again.
type opening struct {
	cluster    types.UID
	generation int64
	driver     string
}

// thoroughEvery is how many probes there are for each thorough one. A thorough probe opens the
// cluster anew, which detects a changed access, and checks that it is still the same cluster.
// Every probe after a failed one is thorough too.
const thoroughEvery = 6

// refresh connects, probes and inspects, as far as each is due.
func (w *clusterWatch) refresh(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster, now time.Time) {
	w.writes.settle()
	if now.Before(w.nextProbe) && cluster.Generation == cluster.Status.ObservedGeneration {
		return
	}
	w.nextProbe = now.Add(r.ProbeEvery)
	if cluster.DriverName() == v1alpha1.DriverOSB {
		w.readCatalog(ctx, r, cluster, now)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.ProbeTimeout)
	defer cancel()
	latency, err := w.probe(ctx, r, cluster)
	r.Probed(w.cluster, now, latency, err)
	if err != nil {
		w.health.failed(err)
		w.untilThorough = 0
		return
	}
	w.health.answered(latency)
	if w.health.answers < steadyAnswers && meta.IsStatusConditionFalse(cluster.Status.Conditions, v1alpha1.ConditionReachable) {
		w.nextProbe = now.Add(r.ProbeEvery / 4) // to become ready again soon
	}
	if w.access.due(now) {
		w.access.inspect(ctx, r, cluster, w.target, now)
	}
	w.writes.look(r, w.cluster, w.target.write, now)
	if !w.synced() {
		cache.WaitForCacheSync(ctx.Done(), w.informersSynced()...)
	}
}

// probe asks the API server whether it is ready, and returns how long the answer took.
func (w *clusterWatch) probe(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster) (latency time.Duration, err error) {
	thorough := w.untilThorough == 0
	if err := w.connect(ctx, r, cluster, thorough); err != nil {
		return 0, err
	}
	start := r.Clock.Now()
	if err := w.target.readyz(ctx); err != nil {
		return 0, w.silent("probe /readyz", err)
	}
	latency = r.Clock.Since(start)
	if thorough && cluster.Status.UID != "" {
		uid, err := w.target.uid(ctx)
		if err != nil {
			return 0, w.silent(member.StepRecognise, err)
		}
		if uid != cluster.Status.UID {
			return 0, member.Stranger(w.cluster, cluster.Status.UID, uid)
		}
	}
	w.untilThorough = (w.untilThorough + thoroughEvery - 1) % thoroughEvery
	return latency, nil
}

func (w *clusterWatch) silent(step member.Step, err error) error {
	return &member.Error{Cluster: w.cluster, Step: step, Err: err, Remedy: member.RemedyFor(err)}
}

// connect opens the cluster anew if its access or its driver has changed.
func (w *clusterWatch) connect(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster, thorough bool) error {
	now := opening{cluster.UID, cluster.Generation, cluster.DriverName()}
	if w.stop != nil && !thorough && now == w.opened {
		return nil
	}
	opened, err := r.open(ctx, cluster)
	if err != nil {
		return err
	}
	same := w.stop != nil && opened.connection == w.target.connection && opened.broker == w.target.broker && now.driver == w.opened.driver
	w.opened = now
	if same {
		return nil
	}
	w.close()
	w.target, w.health, w.access, w.writes, w.catalog = opened, health{}, access{}, writes{}, nil
	w.watch(r, now.driver)
	return nil
}

// watch starts the informers: nodes, storage classes, running pods, and the namespaces of this
// hub's instances, each stripped to the fields that are used.
func (w *clusterWatch) watch(r *clusterReconciler, driver string) {
	ctx, stop := context.WithCancel(r.running)
	w.stop, w.informers = stop, nil
	if driver == v1alpha1.DriverCAPI || driver == v1alpha1.DriverOSB {
		return
	}
	kube := w.target.kube
	running := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.AndSelectors(
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
			fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
		).String()
	}
	ours := func(o *metav1.ListOptions) { o.LabelSelector = labels.Set{v1alpha1.LabelHub: r.HubID}.String() }
	w.nodes = coreinformers.NewNodeInformer(kube, 0, nil)
	w.pods = coreinformers.NewFilteredPodInformer(kube, metav1.NamespaceAll, 0, nil, running)
	w.namespaces = coreinformers.NewFilteredNamespaceInformer(kube, 0, nil, ours)
	w.classes = storageinformers.NewStorageClassInformer(kube, 0, nil)
	w.quotas = coreinformers.NewFilteredResourceQuotaInformer(kube, metav1.NamespaceAll, 0, nil, func(o *metav1.ListOptions) {
		o.LabelSelector = v1alpha1.LabelHub + "," + v1alpha1.LabelHub + "!=" + r.HubID
	})
	w.hidden.Store(false)
	_ = w.quotas.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			w.hidden.Store(true)
			return
		}
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
	})
	w.informers = []cache.SharedIndexInformer{w.nodes, w.pods, w.namespaces, w.classes, w.quotas}

	changed := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.wake(w.cluster) },
		UpdateFunc: func(any, any) { r.wake(w.cluster) },
		DeleteFunc: func(any) { r.wake(w.cluster) },
	}
	for _, informer := range w.informers {
		// Both fail only if the informer has been started.
		_ = informer.SetTransform(strip)
		_, _ = informer.AddEventHandler(changed)
		if informer == w.namespaces {
			_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) { tellOwner(o, r.news.lost) }})
		}
		go informer.RunWithContext(ctx)
	}
	watchDelivered(ctx, w.target.metadata, r.HubID, r.news)
}

func (w *clusterWatch) close() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

func (w *clusterWatch) informersSynced() (all []cache.InformerSynced) {
	for _, informer := range w.informers {
		synced := informer.HasSynced
		if informer == w.quotas {
			synced = func() bool { return informer.HasSynced() || w.hidden.Load() }
		}
		all = append(all, synced)
	}
	return all
}

// synced reports whether every informer has listed the cluster once.
func (w *clusterWatch) synced() bool {
	return w.stop != nil && !slices.ContainsFunc(w.informersSynced(), func(synced cache.InformerSynced) bool { return !synced() })
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

// storageClasses returns the names of the cluster's storage classes.
func (w *clusterWatch) storageClasses() []string {
	var names []string
	for _, class := range listed[*storagev1.StorageClass](w.classes) {
		names = append(names, class.Name)
	}
	slices.Sort(names)
	return names
}
