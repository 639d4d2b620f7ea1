package bindings

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/crashpoint"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Defaults of the credentials policy, as the API declares them, for bindings that
// did not pass through it.
const (
	defaultLifetimeSeconds = 86400
	defaultRole            = "edit"
)

// rolePatience bounds the wait for a cluster to see a new RoleBinding.
const rolePatience = 5 * time.Second

// issued is what one cluster gave.
type issued struct {
	credentials ClusterCredentials
	expires     time.Time
}

// issue makes the binding's account on one cluster and requests its token. It is
// idempotent but for the token, which is another one every time.
func (c *Controller) issue(ctx context.Context, b *v1alpha1.ServiceBinding, cluster string) (*issued, error) {
	connection, err := c.Connections.Get(ctx, cluster)
	if err != nil {
		return nil, err
	}
	a := account{Controller: c, binding: b, client: connection.Client, namespace: v1alpha1.MemberNamespace(b.Spec.InstanceName)}
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
	return &issued{expires: token.ExpirationTimestamp.Time, credentials: ClusterCredentials{
		Cluster: cluster, Server: connection.ConsumerServer, CertificateAuthority: string(connection.CAData),
		Namespace: a.namespace, Token: seal.Redact([]byte(token.Token)),
	}}, nil
}

// account is a binding's ServiceAccount and RoleBinding on one cluster; both are
// named like the binding.
type account struct {
	*Controller
	binding   *v1alpha1.ServiceBinding
	client    client.Client
	namespace string
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
	return map[string]string{v1alpha1.AnnotationOwner: string(a.binding.UID)}
}

func (a *account) applyAccount(ctx context.Context) error {
	crashpoint.Hit(crashBeforeAccount)
	err := a.client.Apply(ctx, corev1ac.ServiceAccount(a.binding.Name, a.namespace).
		WithLabels(a.labels()).WithAnnotations(a.annotations()).
		WithAutomountServiceAccountToken(false), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	crashpoint.Hit(crashAfterAccount)
	if err != nil {
		return fmt.Errorf("apply ServiceAccount: %w", err)
	}
	return nil
}

func (a *account) applyRoleBinding(ctx context.Context) error {
	role := v1alpha1.MemberRole(cmp.Or(a.binding.Spec.Credentials.Role, defaultRole))
	crashpoint.Hit(crashBeforeRoleBinding)
	err := a.client.Apply(ctx, rbacv1ac.RoleBinding(a.binding.Name, a.namespace).
		WithLabels(a.labels()).WithAnnotations(a.annotations()).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(role)).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(a.namespace).WithName(a.binding.Name)),
		client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	crashpoint.Hit(crashAfterRoleBinding)
	if err != nil {
		return fmt.Errorf("apply RoleBinding: %w", err)
	}
	return nil
}

// requestToken asks for the API server's own audiences and the policy's lifetime,
// which the API server may shorten.
func (a *account) requestToken(ctx context.Context) (authenticationv1.TokenRequestStatus, error) {
	lifetime := cmp.Or(a.binding.Spec.Credentials.LifetimeSeconds, defaultLifetimeSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &lifetime}}
	holder := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: a.binding.Name}}
	crashpoint.Hit(crashBeforeToken)
	err := a.client.SubResource("token").Create(ctx, holder, request)
	crashpoint.Hit(crashAfterToken)
	if err != nil {
		return authenticationv1.TokenRequestStatus{}, fmt.Errorf("request token: %w", err)
	}
	return request.Status, nil
}

// awaitRole waits until the API server's authorizer sees the RoleBinding, so that
// credentials work from the moment they are handed out.
func (a *account) awaitRole(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, rolePatience)
	defer cancel()
	soon := wait.Backoff{Duration: 4 * time.Millisecond, Factor: 1.5, Steps: 12, Cap: 200 * time.Millisecond}
	err := soon.DelayFunc().Until(patient, true, false, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + a.namespace + ":" + a.binding.Name,
				// Both roles may list pods.
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: a.namespace, Verb: "list", Resource: "pods"},
			},
		}
		err := a.client.Create(ctx, review)
		return review.Status.Allowed, err
	})
	if err != nil {
		return fmt.Errorf("see the RoleBinding in force: %w", err)
	}
	return nil
}

// revoke deletes the account and returns nil once nothing of it is left,
// *pendingError while the cluster keeps it.
func (c *Controller) revoke(ctx context.Context, b *v1alpha1.ServiceBinding, cluster string) error {
	connection, err := c.Connections.Get(ctx, cluster)
	if err != nil {
		return err
	}
	a := account{Controller: c, binding: b, client: connection.Client, namespace: v1alpha1.MemberNamespace(b.Spec.InstanceName)}
	// First: in a namespace that is gone, Sluice may do nothing, not even find that out.
	var namespace corev1.Namespace
	err = a.client.Get(ctx, client.ObjectKey{Name: a.namespace}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read namespace %s: %w", a.namespace, err)
	case namespace.Labels[v1alpha1.LabelHub] != a.Hub || namespace.Labels[v1alpha1.LabelInstance] != b.Spec.InstanceName:
		return nil // somebody else's by now
	}
	meta := metav1.ObjectMeta{Namespace: a.namespace, Name: b.Name}
	group, groupCtx := errgroup.WithContext(ctx)
	crashpoint.Hit(crashBeforeRevoke)
	for _, o := range []client.Object{&rbacv1.RoleBinding{ObjectMeta: meta}, &corev1.ServiceAccount{ObjectMeta: meta}} {
		group.Go(func() error { return a.deleteUntilGone(groupCtx, o) })
	}
	err = group.Wait()
	crashpoint.Hit(crashAfterRevoke)
	if apierrors.IsForbidden(err) && !namespace.DeletionTimestamp.IsZero() {
		return &pendingError{detail: "cluster " + cluster + " is still deleting the instance's namespace"}
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
	return &pendingError{detail: fmt.Sprintf("%T %s is kept by the finalizers %q", o, key.Name, o.GetFinalizers())}
}

// pendingError says what a deletion waits for, in words for end users.
type pendingError struct{ detail string }

func (e *pendingError) Error() string { return e.detail }
