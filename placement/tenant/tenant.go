// Package tenant manages an instance's namespace on a member cluster: its ownership, the rights
// that Sluice gives itself in it, the objects applied there, and its end. The drivers decide
// which objects.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/carried"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

const (
	// ClusterRole is the ceiling of what anyone may do in an instance's namespace.
	ClusterRole = "sluice-tenant"
	// selfBindingName is the name of the RoleBinding that gives Sluice that role there.
	selfBindingName = "sluice"
)

// Tenant is an instance's namespace on one member cluster.
type Tenant struct {
	// Hub is the hub's ID, the value of v1alpha1.LabelHub.
	Hub        string
	Instance   *v1alpha1.ServiceInstance
	Connection *member.Connection
	// Namespace is the result of v1alpha1.MemberNamespace for the instance.
	Namespace string
	// Patience is how long a deleted namespace waits for objects that block it; zero means the
	// constant Patience.
	Patience time.Duration
	// Carried is the order that the namespace carries, sealed with Keys; nil leaves it as it is.
	Carried *carried.Order
	Keys    *seal.Keyset
	// Agreed are the annotations with the rules for the namespace's pods (v1alpha1.WorkloadRules); nil if there are none.
	Agreed map[string]string
}

// Open connects to a member cluster on behalf of an instance.
func Open(ctx context.Context, connections *member.Connections, hub, cluster string, instance *v1alpha1.ServiceInstance) (*Tenant, error) {
	connection, err := connections.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return Of(connection, hub, instance), nil
}

// Of returns an instance's namespace on a connected cluster.
func Of(connection *member.Connection, hub string, instance *v1alpha1.ServiceInstance) *Tenant {
	return &Tenant{Hub: hub, Instance: instance, Connection: connection, Namespace: v1alpha1.MemberNamespace(instance.Name)}
}

// Ensure creates the namespace for the instance, or updates it, and gives Sluice its rights
// there. The error is *delivery.RefusedError if the namespace belongs to somebody else, and
// *delivery.PendingError while one of the same name is being deleted.
func (t *Tenant) Ensure(ctx context.Context) (created bool, err error) {
	if created, err = t.ensureNamespace(ctx); err != nil {
		return created, err
	}
	if err := t.Apply(ctx, t.selfBinding()); err != nil {
		return created, err
	}
	return created, nil
}

// Check returns nil if the namespace exists, belongs to the instance and is as Ensure makes it.
// Otherwise the error names the difference.
func (t *Tenant) Check(ctx context.Context) error {
	// The namespace alone first: if it is gone or foreign, all other reads would be forbidden,
	// which is less clear.
	var namespace corev1.Namespace
	if err := t.Connection.Client.Get(ctx, client.ObjectKey{Name: t.Namespace}, &namespace); err != nil {
		return fmt.Errorf("read namespace %s: %w", t.Namespace, err)
	}
	if !t.owns(&namespace) {
		return t.foreign()
	}
	if _, has := namespace.Annotations[v1alpha1.AnnotationOrder]; t.Carried != nil && !has {
		return fmt.Errorf("namespace %s does not carry its order", t.Namespace)
	}
	return errors.Join(t.Compare(ctx, t.namespaceObject()), t.Compare(ctx, t.selfBinding()))
}

// Object is an apply configuration: only those fields of a Kubernetes object that Sluice owns.
type Object interface {
	runtime.ApplyConfiguration
	GetKind() *string
	GetAPIVersion() *string
	GetName() *string
	GetNamespace() *string
}

// FromUnstructured returns an object of an API without apply configurations.
func FromUnstructured(o *unstructured.Unstructured) Object { return &generic{o} }

type generic struct{ *unstructured.Unstructured }

func (*generic) IsApplyConfiguration() {}

func (g *generic) GetKind() *string       { return ptr.To(g.Unstructured.GetKind()) }
func (g *generic) GetAPIVersion() *string { return ptr.To(g.Unstructured.GetAPIVersion()) }
func (g *generic) GetName() *string       { return ptr.To(g.Unstructured.GetName()) }
func (g *generic) GetNamespace() *string  { return ptr.To(g.Unstructured.GetNamespace()) }

// Labels returns the labels of everything that belongs to an instance.
func (t *Tenant) Labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelHub:              t.Hub,
		v1alpha1.LabelInstance:         t.Instance.Name,
		"app.kubernetes.io/managed-by": v1alpha1.FieldManager,
	}
}

// namespaceLabels adds the pod security level: baseline is enforced, so that no pod reaches its
// node; a pod that is not restricted gets a warning.
func (t *Tenant) namespaceLabels() map[string]string {
	labels := t.Labels()
	labels["pod-security.kubernetes.io/enforce"] = "baseline"
	labels["pod-security.kubernetes.io/warn"] = "restricted"
	return labels
}

func (t *Tenant) annotations() map[string]string {
	annotations := map[string]string{v1alpha1.AnnotationOwner: string(v1alpha1.UIDOf(t.Instance))}
	maps.Copy(annotations, t.Agreed)
	return annotations
}

// annotationsWithOrder adds the order that the namespace carries, as it is in have if that is the same one.
func (t *Tenant) annotationsWithOrder(have string) (map[string]string, error) {
	annotations := t.annotations()
	if t.Carried == nil {
		return annotations, nil
	}
	order, err := t.Carried.Seal(t.Keys, t.Instance.Namespace, t.Instance.Name, have)
	annotations[v1alpha1.AnnotationOrder] = order
	return annotations, err
}

func (t *Tenant) namespaceObject() *corev1ac.NamespaceApplyConfiguration {
	return corev1ac.Namespace(t.Namespace).
		WithLabels(t.namespaceLabels()).WithAnnotations(t.annotations())
}

// selfBinding gives Sluice the tenant's rules in this one namespace. With them it creates
// everything else there.
func (t *Tenant) selfBinding() *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(selfBindingName, t.Namespace).
		WithLabels(t.Labels()).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName(ClusterRole)).
		WithSubjects(applied(Subject(t.Connection.Username)))
}

// Subject converts a user name reported by an API server to an RBAC subject.
func Subject(username string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(username, "system:serviceaccount:"); ok {
		if namespace, name, ok := strings.Cut(account, ":"); ok {
			return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
		}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: username}
}

func applied(s rbacv1.Subject) *rbacv1ac.SubjectApplyConfiguration {
	subject := rbacv1ac.Subject().WithKind(s.Kind).WithName(s.Name)
	if s.Kind == rbacv1.ServiceAccountKind {
		return subject.WithNamespace(s.Namespace)
	}
	return subject.WithAPIGroup(s.APIGroup)
}

// Apply applies one object server-side. An apply that changes nothing writes nothing.
func (t *Tenant) Apply(ctx context.Context, o Object) error {
	if g, ok := o.(*generic); ok {
		o = FromUnstructured(g.DeepCopy())
	}
	return ApplyTo(ctx, t.Connection.Client, o)
}

// ApplyTo applies one object with another client. An object from FromUnstructured becomes what is there
// then, with its status.
func ApplyTo(ctx context.Context, c client.Client, o Object) error {
	var what runtime.ApplyConfiguration = o
	if g, ok := o.(*generic); ok {
		what = client.ApplyConfigurationFromUnstructured(g.Unstructured)
	}
	if err := c.Apply(ctx, what, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", *o.GetKind(), *o.GetName(), err)
	}
	return nil
}

// ApplyInside applies an object that needs Sluice's rights in the namespace.
func (t *Tenant) ApplyInside(ctx context.Context, o Object) error {
	return OnceAllowed(ctx, func(ctx context.Context) error { return t.Apply(ctx, o) })
}

// permissionPatience limits the wait for an API server to see new rights.
const permissionPatience = 5 * time.Second

// Soon retries quickly at first, as most waits are for one watch event.
var Soon = wait.Backoff{Duration: 4 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 12, Cap: 200 * time.Millisecond}

// OnceAllowed repeats do while it is forbidden: API servers authorize from caches,
// which see the self-binding some milliseconds after its creation.
func OnceAllowed(ctx context.Context, do func(context.Context) error) error {
	patient, cancel := context.WithTimeout(ctx, permissionPatience)
	defer cancel()
	var last error
	err := Soon.DelayFunc().Until(patient, true, false, func(context.Context) (bool, error) {
		last = do(ctx)
		retry := apierrors.IsForbidden(last) && !apierrors.HasStatusCause(last, corev1.NamespaceTerminatingCause)
		return !retry, nil
	})
	if last == nil && err != nil {
		return err // the context ended before the first try
	}
	return last
}

// Rules returns what Sluice may do anywhere on a member cluster, with any driver: read, manage
// its own namespaces, bind ClusterRole in them, and renew one Lease, which proves that the
// cluster accepts writes.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"list", "create", "patch"}},
		{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{ClusterRole}, Verbs: []string{"bind"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{v1alpha1.MemberLease}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews"}, Verbs: []string{"create"}},
		{NonResourceURLs: []string{"/livez", "/readyz", "/version"}, Verbs: []string{"get"}},
	}
}

// Standing is the state of the namespace.
type Standing int

// Standings.
const (
	Gone Standing = iota // it does not exist, or belongs to somebody else
	Held
	Ending // it is being deleted
)

// Standing reads the namespace.
func (t *Tenant) Standing(ctx context.Context) (Standing, error) {
	var namespace corev1.Namespace
	err := t.Connection.Client.Get(ctx, client.ObjectKey{Name: t.Namespace}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return Gone, nil
	case err != nil:
		return Gone, fmt.Errorf("read namespace %s: %w", t.Namespace, err)
	case !t.owns(&namespace):
		return Gone, nil
	case !namespace.DeletionTimestamp.IsZero():
		return Ending, nil
	}
	return Held, nil
}
