package member

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-dev/sluice/internal/answers"
	"github.com/sluice-dev/sluice/internal/crashpoint"
)

// requestTimeout bounds each request of Connection.Client.
const requestTimeout = 15 * time.Second

// Connection is a member cluster that has answered. It is safe for concurrent use.
type Connection struct {
	// Cluster is the name of the MemberCluster.
	Cluster string
	// Config has no timeout; bound each use of it by a context.
	Config *rest.Config
	// Client reads live, without a cache, and gives up on a request after 15 seconds.
	Client client.Client
	// Server is the URL of the API server as Sluice reaches it.
	Server string
	// ConsumerServer is the URL at which consumers reach it.
	ConsumerServer string
	// CAData is the PEM bundle that verifies the API server; none means the
	// system's roots.
	CAData []byte
	// Username is Sluice's user name on the cluster.
	Username string

	pin       *answers.Pin
	transport *http.Client
	mapper    meta.RESTMapper
}

// Typed returns a client like Client, with the types of another scheme.
func (c *Connection) Typed(s *runtime.Scheme) (client.Client, error) {
	bounded := rest.CopyConfig(c.Config)
	bounded.Timeout = requestTimeout
	typed, err := client.New(bounded, client.Options{Scheme: s, Mapper: c.mapper, HTTPClient: c.transport})
	if err != nil {
		return nil, &Error{Cluster: c.Cluster, Step: StepConnect, Remedy: RemedyFor(err), Err: err}
	}
	return typed, nil
}

// connect opens a connection. It asks the API server for Sluice's user name there, which proves
// address, certificate and credentials with one request, and for the cluster's UID.
func connect(ctx context.Context, cluster, consumerServer string, config *rest.Config) (*Connection, error) {
	pin := answers.KubeSystem()
	answers.Check(config, pin)
	crashpoint.Guard(config, "cluster")
	bounded := rest.CopyConfig(config)
	bounded.Timeout = requestTimeout
	transport, err := rest.HTTPClientFor(bounded)
	if err != nil {
		return nil, fmt.Errorf("build its HTTP client: %w", err)
	}
	mapper, err := restMapper(bounded, transport)
	if err != nil {
		return nil, fmt.Errorf("build its REST mapper: %w", err)
	}
	c, err := client.New(bounded, client.Options{Scheme: scheme.Scheme, Mapper: mapper, HTTPClient: transport})
	if err != nil {
		return nil, fmt.Errorf("build its client: %w", err)
	}
	var self authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &self); err != nil {
		transport.CloseIdleConnections()
		return nil, fmt.Errorf("ask who Sluice is: %w", err)
	}
	if self.Status.UserInfo.Username == "" {
		transport.CloseIdleConnections()
		return nil, errors.New("read Sluice's own user name: the answer contains none")
	}
	if consumerServer == "" {
		consumerServer = config.Host
	}
	connection := &Connection{
		Cluster: cluster, Config: config, Client: c,
		Server: config.Host, ConsumerServer: consumerServer, CAData: config.CAData,
		Username:  self.Status.UserInfo.Username,
		pin:       pin,
		transport: transport,
		mapper:    mapper,
	}
	uid, err := connection.uid(ctx)
	if err != nil && !apierrors.IsForbidden(err) { // if forbidden, the cluster is identified by what the hub has recorded
		transport.CloseIdleConnections()
		return nil, fmt.Errorf("ask which cluster it is: %w", err)
	}
	pin.Set(uid)
	return connection, nil
}

// uid returns the UID of the cluster that answers.
func (c *Connection) uid(ctx context.Context) (string, error) {
	var system corev1.Namespace
	if err := c.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
		return "", err
	}
	return UIDOf(&system)
}

// longestUID is the length of the longest UID of a cluster. Kubernetes' own have 36 characters.
const longestUID = 128

// UIDOf returns the UID of a cluster, which its namespace kube-system has. The error is about one that is too long to be kept.
func UIDOf(system *corev1.Namespace) (string, error) {
	if n := len(system.UID); n > longestUID {
		return "", fmt.Errorf("its namespace %s has a UID of %d characters, and at most %d are allowed", metav1.NamespaceSystem, n, longestUID)
	}
	return string(system.UID), nil
}

// UID returns the UID of the cluster, as it said when the connection was opened; "" if Sluice may not know it.
func (c *Connection) UID() string { return c.pin.UID() }

// recognise returns an *Error unless the cluster has the given UID. An empty uid means that the
// cluster was never seen before.
func (c *Connection) recognise(uid string) error {
	switch is := c.pin.UID(); {
	case uid == "", is == uid:
		return nil
	case is == "":
		c.pin.Set(uid)
		return nil
	default:
		return Stranger(c.Cluster, uid, is)
	}
}

// Close frees the connection's sockets once the requests in flight are done. Connections close those that they keep.
func (c *Connection) Close() { c.transport.CloseIdleConnections() }

// restMapper maps the kinds that Sluice always uses without discovery, which saves several
// requests a connection, and uses discovery for all other kinds.
func restMapper(config *rest.Config, transport *http.Client) (meta.RESTMapper, error) {
	discovered, err := apiutil.NewDynamicRESTMapper(config, transport)
	if err != nil {
		return nil, err
	}
	known := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []struct {
		version schema.GroupVersion
		scope   meta.RESTScope
		kinds   []string
	}{
		{corev1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"Namespace", "Node"}},
		{corev1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"LimitRange", "Pod", "ResourceQuota", "Secret", "ServiceAccount"}},
		{networkingv1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"NetworkPolicy"}},
		{rbacv1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"ClusterRole", "ClusterRoleBinding"}},
		{rbacv1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Role", "RoleBinding"}},
		{authenticationv1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"SelfSubjectReview"}},
		{schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}, meta.RESTScopeRoot, []string{"StorageClass"}},
		{schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}, meta.RESTScopeRoot, []string{"SelfSubjectAccessReview"}},
		{schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}, meta.RESTScopeNamespace, []string{"LocalSubjectAccessReview"}},
	} {
		for _, name := range kind.kinds {
			known.Add(kind.version.WithKind(name), kind.scope)
		}
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, discovered}}, nil
}
