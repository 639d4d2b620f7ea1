package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/placement/reader"
)

// clients of a watch for its member cluster.
type clients struct {
	// broker that the member cluster stands for; nil if it is a cluster, which has everything else.
	broker     *osbclient.Client
	connection *member.Connection
	kube       kubernetes.Interface
	metadata   metadata.Interface
	dynamic    dynamic.Interface
	// readyz probes the API server.
	readyz func(context.Context) error
	// keyHash returns the digest of the API server's key, see member.KeyHash.
	keyHash func(context.Context) (string, error)
	// write makes a small write there; nil if Sluice may not write.
	write func(context.Context) error
}

// openClients returns a function that makes clients over connections, one for each connection.
func openClients(connections *member.Connections, brokers *osbclient.Brokers) func(context.Context, *v1alpha1.MemberCluster) (clients, error) {
	return func(ctx context.Context, cluster *v1alpha1.MemberCluster) (clients, error) {
		if brokers != nil && cluster.DriverName() == v1alpha1.DriverOSB {
			broker, err := brokers.Open(ctx, cluster)
			return clients{broker: broker}, err
		}
		connection, err := connections.Open(ctx, cluster)
		if err != nil {
			return clients{}, err
		}
		config := rest.CopyConfig(connection.Config)
		config.QPS = -1 // watches and a probe every few seconds need no limit
		kube, err := kubernetes.NewForConfig(config)
		if err != nil {
			return clients{}, fmt.Errorf("member cluster %s: build its client: %w", cluster.Name, err)
		}
		names, err := metadata.NewForConfig(config)
		if err != nil {
			return clients{}, fmt.Errorf("member cluster %s: build its client: %w", cluster.Name, err)
		}
		objects, err := dynamic.NewForConfig(config)
		if err != nil {
			return clients{}, fmt.Errorf("member cluster %s: build its client: %w", cluster.Name, err)
		}
		opened := clients{
			connection: connection, kube: kube, metadata: names, dynamic: objects,
			readyz: func(ctx context.Context) error {
				return kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
			},
			keyHash: func(ctx context.Context) (string, error) { return member.KeyHash(ctx, config) },
		}
		if !cluster.IsJoined() { // on a joined cluster Sluice only reads
			opened.write = renewLease(kube, connection.Username)
		}
		return opened, nil
	}
}

// uid returns the UID of the cluster.
func (c clients) uid(ctx context.Context) (string, error) {
	system, err := c.kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return member.UIDOf(system)
}

// capacityReader reads what a member cluster has, and what others use there.
type capacityReader interface {
	// Read returns what was read last, without waiting for the cluster. The error is the reason why nothing is placed by it.
	Read(ctx context.Context) (reader.Reading, error)
	// Wait blocks until there is a reading, or the context ends.
	Wait(ctx context.Context)
	// Close ends the reading, without waiting. leaves means that the cluster leaves the inventory.
	Close(leaves bool)
}

// clusterWatch is Sluice's knowledge of one member cluster. Passes over one cluster never
// overlap, so only its reader is concurrent.
type clusterWatch struct {
	cluster string
	hub     string // its id
	clients clients
	stop    context.CancelFunc
	// reader of the cluster's capacity; nil until the cluster has been opened.
	reader capacityReader
	source capacitySource

	// opened holds the values with which the clients were made.
	opened opening

	health health
	access access
	guards guards
	writes writes
	// untilThorough is the number of probes until the next thorough one.
	untilThorough int
	// catalog that was read last, if the member cluster stands for a broker.
	catalog *osbclient.Catalog
	// market of the broker, if it is a Sluice.
	market market
	// ordered names the plans, as SERVICE/PLAN, that offerings order there.
	ordered map[string]bool
	// failures of orders at the broker lately; guarded by clusterReconciler.mu.
	failures  []v1alpha1.OrderFailure
	nextProbe time.Time
	wrote     time.Time
}

// opening holds the values on which the clients depend, beside the access of their connection. If one
// changes, they are made again.
type opening struct {
	cluster    types.UID
	generation int64
	driver     string
}

// capacitySource holds the values on which a reader depends. If one changes, another reader is started.
type capacitySource struct {
	reader   string
	declared corev1.ResourceList
	external *v1alpha1.ExternalReader
}

func (s capacitySource) equal(other capacitySource) bool {
	return s.reader == other.reader && equality.Semantic.DeepEqual(s.declared, other.declared) && equality.Semantic.DeepEqual(s.external, other.external)
}

// thoroughEvery is how many probes there are for each thorough one. A thorough probe opens the
// cluster anew, which detects a changed access, and checks that it is still the same cluster.
// Every probe after a failed one is thorough too.
const thoroughEvery = 6

// refresh connects, probes and inspects, as far as each is due.
func (w *clusterWatch) refresh(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster, now time.Time) {
	w.writes.settle()
	if cluster.Spec.Pool != nil {
		w.lookAtFront(r, cluster, now)
		return
	}
	if now.Before(w.nextProbe) && cluster.Generation == cluster.Status.ObservedGeneration {
		return
	}
	w.nextProbe = now.Add(r.ProbeEvery)
	if cluster.DriverName() == v1alpha1.DriverOSB {
		w.readCatalog(ctx, r, cluster, now)
		return
	}
	probing, cancel := context.WithTimeout(ctx, r.ProbeTimeout)
	defer cancel()
	latency, err := w.probe(probing, r, cluster)
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
		inspecting, cancel := context.WithTimeout(ctx, accessTimeout)
		w.access.inspect(inspecting, r, cluster, w.clients, now)
		cancel()
	}
	w.guards.look(probing, r, cluster, w.clients, now)
	w.writes.look(r, w.cluster, w.clients.write, now)
	w.reader.Wait(probing)
}

// probe asks the API server whether it is ready, and returns how long the answer took.
func (w *clusterWatch) probe(ctx context.Context, r *clusterReconciler, cluster *v1alpha1.MemberCluster) (latency time.Duration, err error) {
	thorough := w.untilThorough == 0
	if err := w.connect(ctx, r, cluster, thorough); err != nil {
		return 0, err
	}
	start := r.Clock.Now()
	if err := w.clients.readyz(ctx); err != nil {
		return 0, w.silent("probe /readyz", err)
	}
	latency = r.Clock.Since(start)
	if thorough && cluster.Status.UID != "" {
		uid, err := w.clients.uid(ctx)
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
	same := w.stop != nil && opened.connection == w.clients.connection && opened.broker == w.clients.broker && now.driver == w.opened.driver
	w.opened = now
	if !same {
		w.close(false)
		w.clients, w.health, w.access, w.guards, w.writes, w.catalog = opened, health{}, access{}, guards{}, writes{}, nil
		var watching context.Context
		watching, w.stop = context.WithCancel(r.running)
		if cluster.RunsPods() {
			watchDelivered(watching, w.clients, r.HubID, r.news)
		}
	}
	w.read(r, cluster)
	return nil
}

// read starts the reader that the cluster's spec selects, unless it is running.
func (w *clusterWatch) read(r *clusterReconciler, cluster *v1alpha1.MemberCluster) {
	from := sourceOf(cluster)
	if w.reader != nil && w.source.equal(from) {
		return
	}
	if w.reader != nil {
		w.reader.Close(false)
		w.access = access{} // which rights Sluice needs depends on the reader
	}
	w.source = from
	switch from.reader {
	case v1alpha1.ReaderPool:
		w.reader = reader.NewPool(r.running, r.Inventory, w.cluster, func() { r.wakeNow(w.cluster) })
	case v1alpha1.ReaderDeclared:
		w.reader = reader.Declared(from.declared)
	case v1alpha1.ReaderExternal:
		w.reader = reader.NewExternal(r.running, reader.ExternalOptions{
			ExternalReader: *from.external, Cluster: w.cluster, Changed: func() { r.wakeNow(w.cluster) },
			Token: r.readerToken(cluster),
		})
	default:
		w.reader = reader.NewNodes(r.running, reader.NodesOptions{
			Kube: w.clients.kube, Cluster: w.cluster, HubID: r.HubID, Inventory: r.Inventory,
			Changed: func() { r.wake(w.cluster) },
		})
	}
}

// readerToken returns a function that returns the token for the cluster's reader; nil if it needs none.
func (r *clusterReconciler) readerToken(cluster *v1alpha1.MemberCluster) func(context.Context) (string, error) {
	if cluster.Spec.Reader.Token == nil {
		return nil
	}
	identity := v1alpha1.ReaderIdentity(cluster)
	return func(ctx context.Context) (string, error) {
		token, err := r.Connections.Kubeconfig(ctx, identity)
		return strings.TrimSpace(string(token)), err
	}
}

func sourceOf(cluster *v1alpha1.MemberCluster) capacitySource {
	from := capacitySource{cluster.ReaderName(), cluster.Spec.Capacity, cluster.Spec.Reader}
	if cluster.DriverName() == v1alpha1.DriverOSB && len(from.declared) == 0 {
		from.declared = corev1.ResourceList{v1alpha1.ResourceInstances: *resource.NewQuantity(unbounded, resource.DecimalSI)}
	}
	return from
}

// close ends what runs for the cluster. leaves means that it leaves the inventory.
func (w *clusterWatch) close(leaves bool) {
	if w.stop != nil {
		w.reader.Close(leaves)
		w.stop()
		w.stop, w.reader, w.source = nil, nil, capacitySource{}
	}
}
