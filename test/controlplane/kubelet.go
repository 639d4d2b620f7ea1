package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	heartbeat       = 10 * time.Second // a kubelet's default; a lease is good for four of them
	requestTimeout  = 10 * time.Second // so that a paused API server does not hold a worker
	podWorkers      = 16
	simulatedSource = "simulated-kubelet"
)

// The addresses handed out, one after the other and never twice: 8 million pods, 1 million nodes.
var (
	firstPodIP  = netip.MustParseAddr("10.128.0.0")
	firstNodeIP = netip.MustParseAddr("172.16.0.0")
)

// kubelets plays the kubelet of every simulated node of one control plane: heartbeats, starting pods, finishing deleted
// ones. No container ever runs.
type kubelets struct {
	config  *rest.Config
	client  kubernetes.Interface
	version string // of the API server
	pods    cache.SharedIndexInformer
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]

	lastPodIP, lastNodeIP atomic.Uint32

	mu         sync.Mutex
	registered map[string]registration
}

type registration struct {
	uid types.UID
	ip  string
}

func newKubelets(config *rest.Config) (*kubelets, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), simulatedSource)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect %s: %w", simulatedSource, err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("ask for the API server's version: %w", err)
	}
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, heartbeat)
	k := &kubelets{
		config:     config,
		client:     client,
		version:    version.GitVersion,
		pods:       corev1informers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, assigned),
		queue:      workqueue.NewTypedRateLimitingQueue(backoff),
		registered: map[string]registration{},
	}
	// A lost API server is what the tests are about, not news.
	if err := k.pods.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	_, err = k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    k.enqueue,
		UpdateFunc: func(_, pod any) { k.enqueue(pod) },
	})
	return k, err
}

// assigned selects the pods that are bound to a node.
func assigned(options *metav1.ListOptions) {
	options.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
}

// run works until ctx is done.
func (k *kubelets) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { k.pods.RunWithContext(ctx) })
	running.Go(func() { wait.UntilWithContext(ctx, k.beat, heartbeat) })
	for range podWorkers {
		running.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	running.Wait()
}

// register creates the Node and its lease. It fails if there is a Node of that name.
func (k *kubelets) register(ctx context.Context, n Node) error {
	ip := nth(firstNodeIP, k.lastNodeIP.Add(1))
	object, err := n.object(ip, k.version)
	if err != nil {
		return err
	}
	node, err := k.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	r := registration{uid: node.UID, ip: ip}
	k.mu.Lock()
	k.registered[n.Name] = r
	k.mu.Unlock()
	return k.renew(ctx, n.Name, r)
}

// deregister deletes the Node; its heartbeats stop. Without a Node of that name there is nothing to do.
func (k *kubelets) deregister(ctx context.Context, name string) error {
	k.mu.Lock()
	delete(k.registered, name)
	k.mu.Unlock()
	err := k.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", name, err)
	}
	return nil
}

func (k *kubelets) registration(node string) (registration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.registered[node]
	return r, ok
}

// beat renews the lease of every node and, where the node lifecycle controller had given a node up, reports it healthy
// again. What fails is tried again at the next beat, as kubelets do.
func (k *kubelets) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // the API server's cache will do
	if err != nil {
		return
	}
	var beats errgroup.Group
	beats.SetLimit(podWorkers)
	for _, node := range nodes.Items {
		r, ours := k.registration(node.Name)
		if !ours || r.uid != node.UID {
			continue
		}
		beats.Go(func() error {
			if err := k.renew(ctx, node.Name, r); err != nil || ready(&node) {
				return err
			}
			return patchStatus(ctx, k.client, "nodes", &node, map[string]any{"conditions": healthy()})
		})
	}
	_ = beats.Wait()
}

func (k *kubelets) renew(ctx context.Context, node string, r registration) error {
	lease := coordinationv1ac.Lease(node, corev1.NamespaceNodeLease).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Node").WithName(node).WithUID(r.uid)).
		WithSpec(coordinationv1ac.LeaseSpec().
			WithHolderIdentity(node).
			WithLeaseDurationSeconds(int32(4 * heartbeat / time.Second)).
			WithRenewTime(metav1.NowMicro()))
	_, err := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).
		Apply(ctx, lease, metav1.ApplyOptions{FieldManager: simulatedSource, Force: true})
	if err != nil {
		return fmt.Errorf("renew lease of node %s: %w", node, err)
	}
	return nil
}

func (k *kubelets) enqueue(object any) {
	pod := object.(*corev1.Pod)
	if _, ours := k.registration(pod.Spec.NodeName); !ours {
		return
	}
	if givenUp(pod) {
		k.queue.AddAfter(cache.MetaObjectToName(pod), heartbeat) // the node first, or it is given up again
		return
	}
	k.queue.Add(cache.MetaObjectToName(pod))
}

// next syncs one pod, trying again later what fails; it returns false once the queue is shut down.
func (k *kubelets) next(ctx context.Context) bool {
	name, shutdown := k.queue.Get()
	if shutdown {
		return false
	}
	defer k.queue.Done(name)
	object, exists, _ := k.pods.GetStore().GetByKey(name.String())
	if exists {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		if err := k.sync(ctx, object.(*corev1.Pod)); err != nil && !apierrors.IsNotFound(err) {
			k.queue.AddRateLimited(name)
			return true
		}
	}
	k.queue.Forget(name)
	return true
}

// sync takes a pod one step further: a deleted one is finished, without its grace period, a pending one is started, and one
// that was given up together with its node is reported ready again.
func (k *kubelets) sync(ctx context.Context, pod *corev1.Pod) error {
	switch {
	case pod.DeletionTimestamp != nil:
		if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
			return nil // only finalizers hold it
		}
		options := metav1.NewDeleteOptions(0)
		options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
		return k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
	case pod.Status.Phase == corev1.PodPending:
		r, ours := k.registration(pod.Spec.NodeName)
		if !ours {
			return nil
		}
		podIP := r.ip
		if !pod.Spec.HostNetwork {
			podIP = nth(firstPodIP, k.lastPodIP.Add(1))
		}
		exitCode, ends := k.execute(ctx, pod)
		if !ends {
			return nil
		}
		return patchStatus(ctx, k.client, "pods", pod, started(pod, r.ip, podIP, exitCode))
	case givenUp(pod):
		return patchStatus(ctx, k.client, "pods", pod, map[string]any{"conditions": serving(corev1.ConditionTrue, "")})
	}
	return nil
}

// patchStatus merges status into the object's, key by key and conditions by type, unless the object has been replaced by another of its name.
func patchStatus(ctx context.Context, client kubernetes.Interface, kind string, object metav1.Object, status any) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": object.GetUID()},
		"status":   status,
	})
	if err != nil {
		return err
	}
	err = client.CoreV1().RESTClient().Patch(types.StrategicMergePatchType).
		NamespaceIfScoped(object.GetNamespace(), object.GetNamespace() != "").
		Resource(kind).Name(object.GetName()).SubResource("status").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("report status of %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}

// nth is the n-th IPv4 address after first.
func nth(first netip.Addr, n uint32) string {
	b := first.As4()
	n += uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}
