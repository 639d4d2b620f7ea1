package member

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/answers"
	"github.com/sluice-dev/sluice/internal/guarded"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Connections opens and keeps one connection a member cluster. It is safe for
// concurrent use; its zero value needs Reader and Namespace.
type Connections struct {
	// Reader of the hub. MemberClusters may come from a cache, Secrets must not.
	Reader client.Reader
	// Namespace of the hub that holds Sluice's resources.
	Namespace string
	// Keys unseal the kubeconfigs that `sluice cluster add` sealed. If nil, only clusters with
	// a Secret can be reached.
	Keys *seal.Keyset
	// Wrap is put around the transport of every connection, to refuse writes of a replica that
	// does not lead. It may be nil.
	Wrap transport.WrapperFunc
	// AllowAddresses are addresses that others than the operator have given, and that may be reached though they are not
	// public.
	AllowAddresses []netip.Prefix

	opening singleflight.Group
	mu      sync.Mutex
	open    map[string]kept
}

// kept is a connection and the access it was opened with.
type kept struct {
	*Connection
	access fingerprint
}

// fingerprint is a digest of everything that a connection depends on. It saves keeping
// kubeconfigs in memory for comparison.
type fingerprint [sha256.Size]byte

// Cluster reads a MemberCluster. If it is gone, its connection is dropped. The error is an
// *Error; see IsUnknown.
func (c *Connections) Cluster(ctx context.Context, name string) (*v1alpha1.MemberCluster, error) {
	var cluster v1alpha1.MemberCluster
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, &cluster); err != nil {
		remedy := "check that the hub answers"
		if apierrors.IsNotFound(err) {
			remedy = "add it to the inventory with `sluice cluster add`"
			c.Forget(name)
		}
		return nil, &Error{Cluster: name, Step: StepFind, Remedy: remedy, Err: err}
	}
	return &cluster, nil
}

// Present reads a MemberCluster from which something is to be removed. It returns nil if nothing can be removed there any
// more: the cluster has left the inventory, or is forsaken (v1alpha1.MemberCluster.IsForsaken).
func (c *Connections) Present(ctx context.Context, name string) (*v1alpha1.MemberCluster, error) {
	cluster, err := c.Cluster(ctx, name)
	if IsUnknown(err) || err == nil && cluster.IsForsaken() {
		return nil, nil
	}
	return cluster, err
}

// Get returns the connection to a member cluster. It reads the MemberCluster, then calls Open.
func (c *Connections) Get(ctx context.Context, name string) (*Connection, error) {
	cluster, err := c.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	return c.Open(ctx, cluster)
}

// Open returns the connection to a member cluster, opening it on first use and
// again when the cluster's access has changed; several callers share one opening.
// It blocks for at most a few requests to hub and cluster. Its error is an *Error.
func (c *Connections) Open(ctx context.Context, cluster *v1alpha1.MemberCluster) (*Connection, error) {
	sealed, err := c.access(ctx, cluster)
	if err != nil {
		return nil, err
	}
	connection, err := c.shared(ctx, cluster.Name, fingerprintOf(cluster, sealed), func(ctx context.Context) (*Connection, error) {
		return c.connect(ctx, cluster, sealed)
	})
	if err != nil {
		return nil, err
	}
	if err := connection.recognise(cluster.Status.UID); err != nil {
		c.drop(cluster.Name, fingerprint{}) // read its identity anew next time, in case the right cluster returns
		return nil, err
	}
	return connection, nil
}

// Forget drops the connection to a member cluster that is gone, and to the clusters that it
// made. This removes their credentials from memory.
func (c *Connections) Forget(cluster string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, connection := range c.open {
		if name == cluster || strings.HasPrefix(name, cluster+"/") {
			connection.Close()
			delete(c.open, name)
		}
	}
}

// ForgetInstance drops the connection to the cluster that was made for an instance.
func (c *Connections) ForgetInstance(management, instance string) {
	c.drop(instanceClusterKey(management, instance), fingerprint{})
}

func instanceClusterKey(management, instance string) string {
	return management + "/" + v1alpha1.InstanceClusterName(instance)
}

// OfInstance returns the connection to the cluster that was made for an instance on a management
// cluster. It has the rights of an administrator: use it only to create accounts with fewer
// rights, and never hand it out. The management cluster renews these credentials, so they are
// read on every call. The error is an *Error.
func (c *Connections) OfInstance(ctx context.Context, management, instance string) (*Connection, error) {
	on, err := c.Get(ctx, management)
	if err != nil {
		return nil, err
	}
	var secret corev1.Secret
	name := v1alpha1.InstanceClusterName(instance)
	failed := func(step Step, remedy string, err error) error {
		return &Error{Cluster: management + "/" + name, Step: step, Remedy: remedy, Err: err}
	}
	key := client.ObjectKey{Namespace: v1alpha1.MemberNamespace(instance), Name: name + "-kubeconfig"}
	if err := on.Client.Get(ctx, key, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			c.ForgetInstance(management, instance)
		}
		return nil, failed(StepReadSecret, "wait until its control plane is initialised", err)
	}
	kubeconfig := secret.Data["value"]
	mark := sha256.Sum256(kubeconfig)
	return c.shared(ctx, instanceClusterKey(management, instance), mark, func(ctx context.Context) (*Connection, error) {
		parsed, err := ParseKubeconfig(kubeconfig)
		if err != nil {
			return nil, failed(StepKubeconfig, "check the kubeconfig that its control plane provider writes", err)
		}
		config := parsed.config(false)
		config.Wrap(c.Wrap)
		connection, err := connect(ctx, name, "", config)
		if err != nil {
			return nil, failed(StepConnect, RemedyFor(err), err)
		}
		return connection, nil
	})
}

// shared returns the open connection of a name if it was opened with the same access, and
// otherwise opens it.
func (c *Connections) shared(ctx context.Context, name string, access fingerprint, open func(context.Context) (*Connection, error)) (*Connection, error) {
	c.mu.Lock()
	connection, ok := c.open[name]
	c.mu.Unlock()
	if ok && connection.access == access {
		return connection.Connection, nil
	}

	// A caller that waits for another's opening stops waiting when its own context ends.
	opened := c.opening.DoChan(name+string(access[:]), func() (any, error) {
		// Detached from the first caller's context: if that caller gives up, the others must
		// not fail.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer cancel()
		opened, err := open(ctx)
		if err == nil {
			c.keep(name, opened, access)
		}
		return opened, err
	})
	select {
	case <-ctx.Done():
		return nil, &Error{Cluster: name, Step: StepConnect, Remedy: "it did not answer in time", Err: ctx.Err()}
	case result := <-opened:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*Connection), nil
	}
}

// Kubeconfig reads a cluster's kubeconfig, or a broker's credentials, as it is stored: see ParseForeign before it is passed on.
// Its error is an *Error.
func (c *Connections) Kubeconfig(ctx context.Context, cluster *v1alpha1.MemberCluster) ([]byte, error) {
	access, err := c.access(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return c.kubeconfig(cluster, access)
}

func (c *Connections) connect(ctx context.Context, cluster *v1alpha1.MemberCluster, access []byte) (*Connection, error) {
	kubeconfig, err := c.kubeconfig(cluster, access)
	if err != nil {
		return nil, err
	}
	return c.Try(ctx, cluster, kubeconfig)
}

// Try opens a connection with a kubeconfig, as Open does for the cluster that it is stored in, and keeps neither of
// them: close the connection. Its error is an *Error.
func (c *Connections) Try(ctx context.Context, cluster *v1alpha1.MemberCluster, kubeconfig []byte) (*Connection, error) {
	parsed, err := ParseKubeconfig(kubeconfig)
	if err != nil {
		return nil, &Error{Cluster: cluster.Name, Step: StepKubeconfig, Remedy: "give it a self-contained kubeconfig, for instance the one that `sluice cluster add` creates", Err: err}
	}
	config := parsed.config(cluster.HasForeignAddress())
	if cluster.HasForeignAddress() {
		config.Dial = guarded.NewDialer(guarded.Options{AllowAddresses: c.AllowAddresses}).DialContext
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // which would hide the address
	}
	config.Wrap(c.Wrap)
	connection, err := connect(ctx, cluster.Name, cluster.Spec.ConsumerServer, config)
	if err != nil {
		return nil, &Error{Cluster: cluster.Name, Step: StepConnect, Remedy: RemedyFor(err), Err: err}
	}
	return connection, nil
}

// keep stores a connection for later callers, in place of the previous one.
func (c *Connections) keep(name string, connection *Connection, access fingerprint) {
	c.drop(name, access)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]kept{}
	}
	c.open[name] = kept{connection, access}
}

// RemedyFor returns the remedy for a cluster that does not answer as it should.
func RemedyFor(err error) string {
	switch {
	case errors.As(err, new(*guarded.AddressError)):
		return "its owner gave an address that is not for everyone to reach: allow it with `sluice serve --join-allow-addresses`, if it is right"
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return "its credentials are not accepted: run `sluice cluster renew`"
	case answers.IsTooLarge(err):
		return "API servers of clusters that Sluice can use answer with less: see what it has so much of, or who answers there"
	case answers.IsForeign(err):
		return "something in front of it answers in its place: check where its address leads, and that its API server is running"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time: check that its API server is running and reachable from Sluice"
	default:
		return "check that its API server is running and reachable from Sluice"
	}
}

// drop removes a cluster's connection unless it was opened with the access keep.
func (c *Connections) drop(name string, keep fingerprint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if connection, ok := c.open[name]; ok && connection.access != keep {
		connection.Close()
		delete(c.open, name)
	}
}

// access returns the sealed kubeconfig, or the one in the referenced Secret.
func (c *Connections) access(ctx context.Context, cluster *v1alpha1.MemberCluster) ([]byte, error) {
	ref := cluster.Spec.Access.SecretRef
	if ref == nil {
		return slices.Concat(cluster.Spec.Access.SealedKubeconfig, cluster.Spec.Access.SealedCredentials), nil // one of them
	}
	key := ref.Key
	if key == "" {
		key = "kubeconfig"
	}
	var secret corev1.Secret
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: ref.Name}, &secret)
	if err == nil && len(secret.Data[key]) == 0 {
		err = fmt.Errorf("the Secret %s has no key %q", ref.Name, key)
	}
	if err != nil {
		return nil, &Error{
			Cluster: cluster.Name, Step: StepReadSecret, Err: err,
			Remedy: "create it on the hub, or run `sluice cluster add` if the hub has no Secrets",
		}
	}
	return secret.Data[key], nil
}

func (c *Connections) kubeconfig(cluster *v1alpha1.MemberCluster, access []byte) ([]byte, error) {
	if cluster.Spec.Access.SecretRef != nil {
		return access, nil
	}
	if c.Keys == nil {
		return nil, &Error{
			Cluster: cluster.Name, Step: StepUnseal, Err: errors.New("there is no keyset"),
			Remedy: "name the hub's keyset, or keep the kubeconfig in a Secret",
		}
	}
	kubeconfig, err := c.Keys.Unseal(access, Owner(cluster.Namespace, cluster.Name))
	if err != nil {
		return nil, &Error{
			Cluster: cluster.Name, Step: StepUnseal, Err: err,
			Remedy: "it was sealed with another hub's keys or for another cluster: run `sluice cluster renew`",
		}
	}
	return kubeconfig.Reveal(), nil
}

// Owner returns the associated data that a cluster's kubeconfig is sealed with. It has no UID,
// because the kubeconfig is sealed before the MemberCluster is created with it.
func Owner(namespace, cluster string) []byte {
	return seal.Owner("MemberCluster", namespace, cluster, "")
}

func fingerprintOf(cluster *v1alpha1.MemberCluster, access []byte) fingerprint {
	return sha256.Sum256(bytes.Join([][]byte{[]byte(cluster.UID), []byte(cluster.Spec.ConsumerServer), strconv.AppendBool(nil, cluster.HasForeignAddress()), access}, []byte{0}))
}
