package liqo

import (
	"context"
	"fmt"
	"maps"

	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	names "github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// side is one of the two clusters of a peering, with the objects that it keeps for the other
// one.
type side struct {
	client.Client
	cluster    *v1alpha1.MemberCluster
	connection *member.Connection
	hub        string
	// own is the cluster's identity in Liqo, remote the other's, which is the member cluster remoteCluster.
	own, remote   v1alpha1.LiqoNetwork
	remoteCluster string
	// ending is true if the tenant namespace is being deleted: with everything in it, and
	// Sluice's rights there.
	ending bool
	// latency to the other cluster, measured by this side's gateway; nil if there is none.
	latency *v1alpha1.MeasuredLatency
}

// open connects to a member cluster, with Liqo's types. It asks nothing of a cluster that is known not to answer: each
// request would end after 15 seconds, and count as a timeout of the cluster that is delivered to.
func open(ctx context.Context, connections *member.Connections, hub, name string) (*side, error) {
	cluster, err := connections.Cluster(ctx, name)
	if err != nil {
		return nil, err
	}
	return reach(ctx, connections, hub, cluster)
}

// openPresent is open for removals. It returns nil if nothing can be removed from the cluster any more.
func openPresent(ctx context.Context, connections *member.Connections, hub, name string) (*side, error) {
	cluster, err := connections.Present(ctx, name)
	if err != nil || cluster == nil {
		return nil, err
	}
	return reach(ctx, connections, hub, cluster)
}

// reach is open for a cluster that has been read.
func reach(ctx context.Context, connections *member.Connections, hub string, cluster *v1alpha1.MemberCluster) (*side, error) {
	if c := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReachable); c != nil && c.Status == metav1.ConditionFalse {
		return nil, fmt.Errorf("%s does not answer: %s", cluster.Name, c.Message)
	}
	connection, err := connections.Open(ctx, cluster)
	if err != nil {
		return nil, err
	}
	typed, err := connection.Typed(names.Scheme)
	if err != nil {
		return nil, err
	}
	return &side{Client: typed, cluster: cluster, connection: connection, hub: hub}, nil
}

// liqoNamespace returns the namespace of Liqo there.
func (s *side) liqoNamespace() string {
	if l := s.cluster.Spec.Liqo; l != nil && l.Namespace != "" {
		return l.Namespace
	}
	return names.DefaultNamespace
}

// joined returns the answer of the cluster's owner to an invitation; nil if Sluice sets up the
// cluster itself.
func (s *side) joined() *v1alpha1.JoinedPeering {
	if s.cluster.Spec.Liqo == nil {
		return nil
	}
	return s.cluster.Spec.Liqo.Joined
}

// mayPeer returns *delivery.RefusedError if the cluster has joined by the invitation of another cluster. Its owner has agreed to
// that one peering, and its answer has keys and credentials for that one cluster.
func (s *side) mayPeer(with *side) error {
	joined := s.joined()
	if joined == nil || joined.With == with.cluster.Name {
		return nil
	}
	return &delivery.RefusedError{
		Reason: fmt.Sprintf("%s has joined by the invitation of %s, and is peered with no other cluster", s.cluster.Name, joined.With),
		Remedy: fmt.Sprintf("end this peering, or withdraw that invitation before %s joins by another one", s.cluster.Name),
	}
}

// identify reads the cluster's identity in Liqo.
func (s *side) identify(ctx context.Context) error {
	if joined := s.joined(); joined != nil {
		s.own = joined.Network
		return nil
	}
	var modules []v1alpha1.LiqoModule
	if s.cluster.Spec.Liqo != nil {
		modules = s.cluster.Spec.Liqo.Modules
	}
	network, err := names.Network(ctx, s.Client, s.liqoNamespace(), modules)
	if err != nil {
		return s.failed(err)
	}
	s.own = *network
	return nil
}

// failed adds the cluster's name to an error.
func (s *side) failed(err error) error { return fmt.Errorf("on %s: %w", s.cluster.Name, err) }

// pending returns the error for waiting for something on this side.
func (s *side) pending(object, detail string) error {
	return &delivery.PendingError{Step: object + " on " + s.cluster.Name, Detail: detail, Every: often}
}

// namespace returns the name of the namespace that holds the objects for the other cluster.
func (s *side) namespace() string { return names.TenantNamespace(s.remote.ClusterID) }

// meta returns the metadata of an object there. An object of which there is only one is named
// after the other cluster.
func (s *side) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: s.namespace(), Name: name,
		Labels: map[string]string{consts.RemoteClusterID: s.remote.ClusterID},
	}
}

func (s *side) labels() map[string]string {
	return map[string]string{v1alpha1.LabelHub: s.hub, "app.kubernetes.io/managed-by": v1alpha1.FieldManager}
}

// apply applies an object server-side, with the fields that are set. The object becomes what is there then,
// with its status.
func (s *side) apply(ctx context.Context, o client.Object) error {
	want, err := s.render(o)
	if err != nil {
		return err
	}
	err = tenant.OnceAllowed(ctx, func(ctx context.Context) error { return tenant.ApplyTo(ctx, s.Client, tenant.FromUnstructured(want)) })
	if err != nil {
		return s.failed(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(want.Object, o); err != nil {
		return s.failed(fmt.Errorf("read the applied %s %s: %w", want.GetKind(), want.GetName(), err))
	}
	return nil
}

// render returns an object as it is applied: without status, and with Sluice's labels.
func (s *side) render(o client.Object) (*unstructured.Unstructured, error) {
	kind, err := apiutil.GVKForObject(o, names.Scheme)
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("render %s %s: %w", kind.Kind, o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(kind)
	labels := s.labels()
	maps.Copy(labels, o.GetLabels())
	u.SetLabels(labels)
	delete(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}

// compare returns nil while an object is as apply would make it.
func (s *side) compare(ctx context.Context, t *tenant.Tenant, o client.Object) error {
	want, err := s.render(o)
	if err != nil {
		return err
	}
	return t.Compare(ctx, tenant.FromUnstructured(want))
}

// get reads an object of the tenant namespace by name.
func (s *side) get(ctx context.Context, name string, into client.Object) error {
	err := tenant.OnceAllowed(ctx, func(ctx context.Context) error {
		return s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace(), Name: name}, into)
	})
	if err != nil {
		return s.failed(fmt.Errorf("read %s %s/%s: %w", kindOf(into), s.namespace(), name, err))
	}
	return nil
}

// ensureNamespace creates the tenant namespace and gives Sluice its rights in it. The error is
// *delivery.RefusedError if somebody else has peered the two clusters.
func (s *side) ensureNamespace(ctx context.Context) error {
	err := s.createNamespace(ctx)
	if err != nil {
		return err
	}
	return s.apply(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace(), Name: "sluice"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: tenant.ClusterRole},
		Subjects:   []rbacv1.Subject{tenant.Subject(s.connection.Username)},
	})
}

// standing returns the state of the tenant namespace; one of somebody else counts as gone.
func (s *side) standing(ctx context.Context) (tenant.Standing, error) {
	var namespace corev1.Namespace
	err := s.Client.Get(ctx, client.ObjectKey{Name: s.namespace()}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return tenant.Gone, nil
	case err != nil:
		return tenant.Gone, s.failed(fmt.Errorf("read namespace %s: %w", s.namespace(), err))
	case namespace.Labels[v1alpha1.LabelHub] != s.hub:
		return tenant.Gone, nil
	case !namespace.DeletionTimestamp.IsZero():
		return tenant.Ending, nil
	}
	return tenant.Held, nil
}

// gone deletes an object of the tenant namespace and returns nil once it no longer exists.
// Until then it returns *delivery.PendingError with what blocks the deletion.
func (s *side) gone(ctx context.Context, name string, o client.Object) error {
	key := client.ObjectKey{Namespace: s.namespace(), Name: name}
	err := s.Client.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return s.failed(fmt.Errorf("read %s %s: %w", kindOf(o), key, err))
	}
	if o.GetDeletionTimestamp().IsZero() {
		if err := client.IgnoreNotFound(s.Client.Delete(ctx, o)); err != nil {
			return s.failed(fmt.Errorf("delete %s %s: %w", kindOf(o), key, err))
		}
		if err := s.Client.Get(ctx, key, o); apierrors.IsNotFound(err) {
			return nil
		}
	}
	return s.pending("delete "+kindOf(o)+" "+key.String(), fmt.Sprintf("it is kept by the finalizers %q", o.GetFinalizers()))
}

// kindOf returns an object's kind.
func kindOf(o client.Object) string {
	kind, err := apiutil.GVKForObject(o, names.Scheme)
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	return kind.Kind
}
