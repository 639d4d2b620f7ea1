package bindings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/member"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Defaults of the credentials policy, as the API declares them, for bindings that were
// written without these fields.
const (
	defaultLifetimeSeconds = 365 * 86400
	defaultRole            = "edit"
)

// rolePatience limits the wait for a cluster to see a new RoleBinding.
const rolePatience = 5 * time.Second

// issued is the result from one cluster.
type issued struct {
	credentials ClusterCredentials
	expires     time.Time
	account     types.UID         // of the ServiceAccount; empty if there is none
	results     map[string]string // of the bind hook; nil if it returns none
	handed      *handed           // by another broker or a pool; nil on a cluster
}

// handed is the result from another broker or a pool.
type handed struct {
	credentials seal.Redacted
	// record writes the rest of the result into the status.
	record func(*v1alpha1.ServiceBindingStatus)
}

// handedOn returns the result of a placement at another broker or on a pool.
func handedOn(p *v1alpha1.Placement, credentials seal.Redacted, record func(*v1alpha1.ServiceBindingStatus)) *issued {
	return &issued{handed: &handed{credentials, record}, credentials: ClusterCredentials{Cluster: p.Cluster}}
}

// handedOf returns the result from another broker or a pool; nil if there is none.
func handedOf(all []issued) *handed {
	if len(all) == 0 {
		return nil
	}
	return all[0].handed
}

// issue runs the bind hook of a workload on one cluster, creates the binding's account there, if it
// has one, and requests its token. It is idempotent, except that every call returns another token.
func (c *Controller) issue(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, cluster string) (*issued, error) {
	if p := upstreamOf(instance); p != nil {
		return c.bindUpstream(ctx, b, instance, p)
	}
	results, err := c.bindHook(ctx, b, instance, cluster)
	if err != nil {
		return nil, err
	}
	if !hasAccount(b, instance) {
		return &issued{results: results, credentials: ClusterCredentials{Cluster: cluster}}, nil
	}
	a, err := c.account(ctx, b, instance, cluster)
	if err != nil {
		return nil, err
	}
	var token authenticationv1.TokenRequestStatus
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if err := a.applyAccount(groupCtx); err != nil {
			return err
		}
		token, err = a.requestToken(groupCtx)
		return err
	})
	group.Go(func() error {
		if err := a.applyRoleBinding(groupCtx); err != nil {
			return err
		}
		return a.awaitRole(groupCtx)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return &issued{results: results, account: a.uid, expires: token.ExpirationTimestamp.Time, credentials: ClusterCredentials{
		Cluster: cluster, Name: shownAs(instance, a.connection.Cluster), Server: a.connection.ConsumerServer, CertificateAuthority: string(a.connection.CAData),
		Namespace: a.usual(), Token: seal.Redact([]byte(token.Token)),
	}}, nil
}

// account is a binding's ServiceAccount and its role on one cluster; both have the
// binding's name. On a member cluster they are in the instance's namespace. On a cluster
// that was created for the instance, they are in v1alpha1.BindingsNamespace and the role
// holds in the whole cluster.
type account struct {
	*Controller
	binding    *v1alpha1.ServiceBinding
	connection *member.Connection
	client     client.Client
	namespace  string
	made       bool
	// shown is the name by which the consumer knows the cluster.
	shown string
	// opaque reports that the account may not learn the names of other clusters.
	opaque bool
	// uid of the ServiceAccount, once it is applied.
	uid types.UID
}

// account connects to the cluster of the binding's account.
func (c *Controller) account(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, cluster string) (*account, error) {
	a := &account{
		Controller: c, binding: b, namespace: v1alpha1.MemberNamespace(b.Spec.InstanceName), made: isMade(instance),
		shown: shownAs(instance, cluster), opaque: instance.Spec.Pool != nil,
	}
	var err error
	if a.made {
		a.namespace = v1alpha1.BindingsNamespace
		a.connection, err = c.Connections.OfInstance(ctx, cluster, b.Spec.InstanceName)
	} else {
		a.connection, err = c.Connections.Get(ctx, cluster)
	}
	if err != nil {
		return nil, err
	}
	a.client = a.connection.Client
	return a, nil
}

// applyNamespace creates the namespace of accounts in a cluster that was created for the
// instance.
func (a *account) applyNamespace(ctx context.Context) error {
	if !a.made {
		return nil
	}
	err := a.client.Apply(ctx, corev1ac.Namespace(a.namespace).WithLabels(map[string]string{
		"app.kubernetes.io/managed-by": v1alpha1.FieldManager, "pod-security.kubernetes.io/enforce": "restricted",
	}), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply namespace %s: %w", a.namespace, err)
	}
	return nil
}

// usual is the default namespace of the credentials' kubeconfig context.
func (a *account) usual() string {
	if a.made {
		return metav1.NamespaceDefault
	}
	return a.namespace
}

func (a *account) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelHub:              a.Hub,
		v1alpha1.LabelInstance:         a.binding.Spec.InstanceName,
		v1alpha1.LabelBinding:          a.binding.Name,
		"app.kubernetes.io/managed-by": v1alpha1.FieldManager,
	}
}

func (a *account) annotations() map[string]string {
	return map[string]string{v1alpha1.AnnotationOwner: string(v1alpha1.UIDOf(a.binding))}
}

func (a *account) applyAccount(ctx context.Context) error {
	if err := a.applyNamespace(ctx); err != nil {
		return err
	}
	holder := corev1ac.ServiceAccount(a.binding.Name, a.namespace).
		WithLabels(a.labels()).WithAnnotations(a.annotations()).WithAutomountServiceAccountToken(false)
	if err := a.client.Apply(ctx, holder, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply ServiceAccount: %w", err)
	}
	a.uid = ptr.Deref(holder.UID, "") // the cluster's answer is in holder
	return nil
}

// applyRoleBinding binds the account to its role. What an earlier Sluice bound to a role in the namespace is
// made anew, because Kubernetes keeps the role of a RoleBinding.
func (a *account) applyRoleBinding(ctx context.Context) error {
	role := cmp.Or(a.binding.Spec.Credentials.Role, defaultRole)
	subject := rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(a.namespace).WithName(a.binding.Name)
	ref := rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName)
	var binding runtime.ApplyConfiguration = rbacv1ac.RoleBinding(a.binding.Name, a.namespace).
		WithLabels(a.labels()).WithAnnotations(a.annotations()).WithSubjects(subject).
		WithRoleRef(ref.WithKind("ClusterRole").WithName(a.memberRole(role)))
	if a.made {
		binding = rbacv1ac.ClusterRoleBinding(a.binding.Name).
			WithLabels(a.labels()).WithAnnotations(a.annotations()).WithSubjects(subject).
			WithRoleRef(ref.WithKind("ClusterRole").WithName(role))
	}
	apply := func() error {
		return a.client.Apply(ctx, binding, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	}
	err := apply()
	if apierrors.IsInvalid(err) && !a.made {
		former := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.binding.Name}}
		if err = client.IgnoreNotFound(a.client.Delete(ctx, former)); err == nil {
			err = apply()
		}
	}
	switch {
	case apierrors.IsNotFound(err) && !a.made:
		return &member.Error{
			Cluster: a.connection.Cluster, Step: member.Step("bind to the role " + role), Err: err,
			Remedy: "it was registered before bindings had ClusterRoles: run `sluice cluster renew " + a.connection.Cluster + "`",
		}
	case err != nil:
		return fmt.Errorf("apply the binding of role %s: %w", role, err)
	}
	return nil
}

// memberRole returns the name of the account's ClusterRole on a member cluster.
func (a *account) memberRole(role string) string {
	if a.opaque {
		return v1alpha1.OpaqueRole(role)
	}
	return v1alpha1.MemberRole(role)
}

// requestToken requests a token for the API server's own audiences, with the policy's
// lifetime, which the API server may shorten.
func (a *account) requestToken(ctx context.Context) (authenticationv1.TokenRequestStatus, error) {
	lifetime := cmp.Or(a.binding.Spec.Credentials.LifetimeSeconds, defaultLifetimeSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}}
	holder := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.binding.Name}}
	err := a.client.SubResource("token").Create(ctx, holder, request)
	if err != nil {
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("request token: %w", err)
	}
	if request.Status.Token == "" || request.Status.ExpirationTimestamp.IsZero() {
		return authenticationv1.TokenRequestStatus{}, errors.New("request token: the answer has none")
	}
	return request.Status, nil
}

// awaitRole waits until the API server's authorizer sees the RoleBinding, so that
// credentials work as soon as they are handed out.
func (a *account) awaitRole(ctx context.Context) error {
	// Every role may list pods.
	return awaitRight(ctx, a.client, a.namespace, a.binding.Name, authorizationv1.ResourceAttributes{Namespace: a.namespace, Verb: "list", Resource: "pods"})
}

// awaitRight waits until the API server's authorizer sees a right that an account was given.
func awaitRight(ctx context.Context, c client.Client, namespace, account string, right authorizationv1.ResourceAttributes) error {
	patient, cancel := context.WithTimeout(ctx, rolePatience)
	defer cancel()
	soon := wait.Backoff{Duration: 4 * time.Millisecond, Factor: 1.5, Steps: 12, Cap: 200 * time.Millisecond}
	err := soon.DelayFunc().Until(patient, true, false, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + namespace + ":" + account, ResourceAttributes: &right,
			},
		}
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("see the RoleBinding in force: %w", err)
	}
	return nil
}

// revoke deletes the account, and runs the unbind hook. It returns nil when nothing of the binding remains, and *pendingError
// while the cluster keeps the account, or the hook runs.
func (c *Controller) revoke(ctx context.Context, b *v1alpha1.ServiceBinding, instance *v1alpha1.ServiceInstance, cluster string) error {
	switch u, p := b.Status.Upstream, upstreamOf(instance); {
	case u != nil && u.Broker == cluster:
		return c.unbindUpstream(ctx, b, instance)
	case u == nil && p != nil && p.Cluster == cluster:
		return nil // what a binding is at a broker is written before the broker is asked
	}
	if isMade(instance) && !instance.DeletionTimestamp.IsZero() {
		return nil // the account is deleted with its cluster
	}
	a, err := c.account(ctx, b, instance, cluster)
	if err != nil {
		return err
	}
	// Read the namespace first: once it is gone, Sluice has no permission in it, not even to see
	// that it is gone.
	var namespace corev1.Namespace
	err = a.client.Get(ctx, client.ObjectKey{Name: a.namespace}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read namespace %s: %w", a.namespace, err)
	case !a.made && (namespace.Labels[v1alpha1.LabelHub] != a.Hub || namespace.Labels[v1alpha1.LabelInstance] != b.Spec.InstanceName):
		return nil // it belongs to another owner now
	}
	err = a.delete(ctx, slices.Contains(b.Status.AddressClusters, cluster))
	if err == nil { // after the account, which does not have to be valid until then
		err = c.unbindHook(ctx, b, instance, cluster)
	}
	return whileDeleted(&namespace, a.shown, err)
}

// whileDeleted returns *pendingError for a refusal by a cluster that is deleting the namespace, and with it Sluice's rights
// there; every other error as it is.
func whileDeleted(namespace *corev1.Namespace, cluster string, err error) error {
	if apierrors.IsForbidden(err) && !namespace.DeletionTimestamp.IsZero() {
		return &pendingError{"cluster " + cluster + " is still deleting the instance's namespace", goneCheck}
	}
	return err
}

// delete deletes the ServiceAccount first, which ends its tokens. One write follows another, so that a
// kill leaves one of few states. What fails does not keep the rest from being deleted.
func (a *account) delete(ctx context.Context, withAddresses bool) error {
	meta := metav1.ObjectMeta{Namespace: a.namespace, Name: a.binding.Name}
	var role client.Object = &rbacv1.RoleBinding{ObjectMeta: meta}
	if a.made {
		role = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: a.binding.Name}}
	}
	err := errors.Join(a.deleteUntilGone(ctx, &corev1.ServiceAccount{ObjectMeta: meta}), a.deleteUntilGone(ctx, role))
	if withAddresses {
		err = errors.Join(err, a.withdraw(ctx))
	}
	return err
}

func (a *account) deleteUntilGone(ctx context.Context, o client.Object) error {
	key := client.ObjectKeyFromObject(o)
	err := a.client.Delete(ctx, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %T: %w", o, err)
	}
	err = a.client.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %T: %w", o, err)
	}
	return &pendingError{fmt.Sprintf("%T %s is kept by the finalizers %q", o, key.Name, o.GetFinalizers()), goneCheck}
}

// pendingError reports what a bind or an unbind waits for, in words for end users. pause is the time until the next check.
type pendingError struct {
	detail string
	pause  time.Duration
}

func (e *pendingError) Error() string { return e.detail }

// pendingIn returns what an error waits for; nil if it is another error.
func pendingIn(err error) *pendingError {
	var pending *pendingError
	_ = errors.As(err, &pending)
	return pending
}
