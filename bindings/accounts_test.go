package bindings

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/member"
)

// accountOn returns the account of binding sb-1 in namespace n of a cluster, or in one that was made.
func accountOn(made bool, funcs interceptor.Funcs, objects ...client.Object) *account {
	return &account{
		Controller: &Controller{Hub: "hub-1"}, binding: bindingOf("", nil), namespace: "n", made: made, connection: &member.Connection{Cluster: "a"},
		client: fake.NewClientBuilder().WithScheme(liqo.Scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build(),
	}
}

// An account has a role in its namespace, and in the whole cluster if that was made for the instance.
func TestAppliedAccounts(t *testing.T) {
	for made, roles := range map[bool]map[string]string{
		false: {"": v1alpha1.MemberRole("edit"), "view": v1alpha1.MemberRole("view")},
		true:  {"": "edit", "view": "view"},
	} {
		for asked, role := range roles {
			a := accountOn(made, interceptor.Funcs{})
			a.binding.Spec.Credentials.Role = asked
			if err := errors.Join(a.applyAccount(t.Context()), a.applyRoleBinding(t.Context())); err != nil {
				t.Fatal(err)
			}
			holder := &corev1.ServiceAccount{}
			if err := a.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "sb-1"}, holder); err != nil {
				t.Fatal(err)
			}
			marks := map[string]string{v1alpha1.LabelHub: "hub-1", v1alpha1.LabelInstance: "si-1", v1alpha1.LabelBinding: "sb-1"}
			for label, want := range marks {
				if holder.Labels[label] != want {
					t.Errorf("made %t: %s is %q", made, label, holder.Labels[label])
				}
			}
			if holder.Annotations[v1alpha1.AnnotationOwner] != "uid-1" || holder.AutomountServiceAccountToken == nil || *holder.AutomountServiceAccountToken {
				t.Errorf("made %t: %+v", made, holder)
			}
			namespace, inNamespace, inCluster := &corev1.Namespace{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRoleBinding{}
			missing := func(err error) bool { return apierrors.IsNotFound(err) }
			noNamespace := missing(a.client.Get(t.Context(), client.ObjectKey{Name: "n"}, namespace))
			notThere := missing(a.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: "sb-1"}, inNamespace))
			notEverywhere := missing(a.client.Get(t.Context(), client.ObjectKey{Name: "sb-1"}, inCluster))
			if noNamespace == made || notThere != made || notEverywhere == made {
				t.Errorf("made %t: no namespace %t, no role in it %t, none in the cluster %t", made, noNamespace, notThere, notEverywhere)
			}
			subjects, ref := inNamespace.Subjects, inNamespace.RoleRef
			if made {
				subjects, ref = inCluster.Subjects, inCluster.RoleRef
			}
			if ref.Name != role || ref.Kind != "ClusterRole" || !slices.Equal(subjects, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "n", Name: "sb-1"}}) {
				t.Errorf("made %t, asked for %q: %v has %v", made, asked, subjects, ref)
			}
		}
	}
}

// A RoleBinding that an earlier Sluice bound to another role is made anew; a cluster without the roles says what to do.
func TestFormerRoleBindings(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{}, "sb-1", nil)
	former := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "sb-1"}}
	for name, row := range map[string]struct {
		made    bool
		answers []error
		remove  error
		want    string // empty is no error
		applies int
	}{
		"new":                    {answers: []error{nil}, applies: 1},
		"former":                 {answers: []error{invalid, nil}, applies: 2},
		"former, and kept":       {answers: []error{invalid}, remove: errors.New("kept"), want: "apply the binding of role edit: kept", applies: 1},
		"former, and still so":   {answers: []error{invalid, invalid}, want: "apply the binding of role edit: ", applies: 2},
		"of a cluster":           {made: true, answers: []error{invalid}, want: "apply the binding of role edit: ", applies: 1},
		"without the roles":      {answers: []error{apierrors.NewNotFound(schema.GroupResource{}, "edit")}, want: "sluice cluster renew a", applies: 1},
		"of a cluster, no roles": {made: true, answers: []error{apierrors.NewNotFound(schema.GroupResource{}, "edit")}, want: "apply the binding of role edit: ", applies: 1},
	} {
		t.Run(name, func(t *testing.T) {
			applies := 0
			a := accountOn(row.made, interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					applies++
					return row.answers[applies-1]
				},
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
					if row.remove != nil {
						return row.remove
					}
					return c.Delete(ctx, o, options...)
				},
			}, former.DeepCopy())
			err := a.applyRoleBinding(t.Context())
			if applies != row.applies || (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v after %d writes, want %q after %d", err, applies, row.want, row.applies)
			}
			there := a.client.Get(t.Context(), client.ObjectKeyFromObject(former), &rbacv1.RoleBinding{}) == nil
			if gone := name == "former" || name == "former, and still so"; there == gone {
				t.Errorf("the former one is there is %t", there)
			}
		})
	}
}

// A token lives as long as the plan says, a year by default; an answer without a token is none.
func TestRequestedTokens(t *testing.T) {
	end := metav1.NewTime(today.Add(time.Hour))
	for name, row := range map[string]struct {
		policy, asked int64
		answer        authenticationv1.TokenRequestStatus
		fails         error
		want          bool
	}{
		"by the plan":       {policy: 3600, asked: 3600, answer: authenticationv1.TokenRequestStatus{Token: "t", ExpirationTimestamp: end}, want: true},
		"by default":        {asked: 365 * 86400, answer: authenticationv1.TokenRequestStatus{Token: "t", ExpirationTimestamp: end}, want: true},
		"without a token":   {asked: 365 * 86400, answer: authenticationv1.TokenRequestStatus{ExpirationTimestamp: end}},
		"without an expiry": {asked: 365 * 86400, answer: authenticationv1.TokenRequestStatus{Token: "t"}},
		"not at all":        {asked: 365 * 86400, answer: authenticationv1.TokenRequestStatus{Token: "t", ExpirationTimestamp: end}, fails: errors.New("no")},
	} {
		a := accountOn(false, interceptor.Funcs{SubResourceCreate: func(_ context.Context, _ client.Client, sub string, o, request client.Object, _ ...client.SubResourceCreateOption) error {
			r := request.(*authenticationv1.TokenRequest)
			if sub != "token" || o.GetNamespace() != "n" || o.GetName() != "sb-1" || *r.Spec.ExpirationSeconds != row.asked {
				t.Errorf("%s: %s of %s/%s for %d seconds", name, sub, o.GetNamespace(), o.GetName(), *r.Spec.ExpirationSeconds)
			}
			r.Status = row.answer
			return row.fails
		}})
		a.binding.Spec.Credentials.LifetimeSeconds = row.policy
		if got, err := a.requestToken(t.Context()); (err == nil) != row.want || row.want && got.Token != "t" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Credentials are handed out once the cluster's authorizer sees their role.
func TestAwaitedRoles(t *testing.T) {
	for name, row := range map[string]struct {
		after int
		fails error
	}{"at once": {1, nil}, "soon": {3, nil}, "never": {1, errors.New("no reviews")}} {
		reviews := 0
		a := accountOn(false, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.LocalSubjectAccessReview)
			if right := review.Spec.ResourceAttributes; review.Namespace != "n" || review.Spec.User != "system:serviceaccount:n:sb-1" || right.Verb != "list" || right.Resource != "pods" || right.Namespace != "n" {
				t.Errorf("%s: asked is %+v", name, review)
			}
			reviews++
			review.Status.Allowed = reviews >= row.after && row.fails == nil
			return row.fails
		}})
		if err := a.awaitRole(t.Context()); (err == nil) != (row.fails == nil) || reviews != row.after {
			t.Errorf("%s: %v after %d reviews", name, err, reviews)
		}
	}
}

// The ServiceAccount is deleted with its role; what fails, or stays, does not keep the rest.
func TestDeletedAccounts(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "n", Name: "sb-1"}
	kept := meta
	kept.Finalizers = []string{"x/y"}
	clusterwide := metav1.ObjectMeta{Name: "sb-1"}
	for name, row := range map[string]struct {
		made    bool
		objects []client.Object
		fails   error
		want    string
	}{
		"nothing is there":    {},
		"all is there":        {objects: []client.Object{&corev1.ServiceAccount{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta}}},
		"in the cluster":      {made: true, objects: []client.Object{&corev1.ServiceAccount{ObjectMeta: meta}, &rbacv1.ClusterRoleBinding{ObjectMeta: clusterwide}}},
		"a finalizer":         {objects: []client.Object{&corev1.ServiceAccount{ObjectMeta: kept}, &rbacv1.RoleBinding{ObjectMeta: meta}}, want: `*v1.ServiceAccount sb-1 is kept by the finalizers ["x/y"]`},
		"not deleted":         {objects: []client.Object{&corev1.ServiceAccount{ObjectMeta: meta}, &rbacv1.RoleBinding{ObjectMeta: meta}}, fails: errors.New("no"), want: "delete *v1.ServiceAccount: no"},
		"the role of another": {made: true, objects: []client.Object{&rbacv1.RoleBinding{ObjectMeta: meta}}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := accountOn(row.made, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				if _, ok := o.(*corev1.ServiceAccount); ok && row.fails != nil {
					return row.fails
				}
				return c.Delete(ctx, o, options...)
			}}, row.objects...)
			err := a.delete(t.Context(), false)
			if (err == nil) != (row.want == "") || err != nil && err.Error() != row.want {
				t.Errorf("%v, want %q", err, row.want)
			}
			pending := (*pendingError)(nil)
			if errors.As(err, &pending) != strings.Contains(row.want, "kept by") {
				t.Errorf("%v is pending", err)
			}
			var roles rbacv1.RoleBindingList
			var everywhere rbacv1.ClusterRoleBindingList
			if err := errors.Join(a.client.List(t.Context(), &roles), a.client.List(t.Context(), &everywhere)); err != nil {
				t.Fatal(err)
			}
			if left := len(roles.Items) + len(everywhere.Items); (left > 0) != (name == "the role of another") {
				t.Errorf("%d roles are left", left)
			}
		})
	}
}

// What cannot be read after its deletion may still be there.
func TestDeletedAccountsThatCannotBeRead(t *testing.T) {
	a := accountOn(false, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("no")
	}}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "sb-1"}})
	if err := a.delete(t.Context(), false); err == nil || err.Error() != "read *v1.ServiceAccount: no" {
		t.Errorf("got %v", err)
	}
}

// A refusal counts as waiting only while the cluster deletes the namespace.
func TestRefusalsWhileANamespaceIsDeleted(t *testing.T) {
	forbidden, broken := apierrors.NewForbidden(schema.GroupResource{}, "sb-1", nil), errors.New("no")
	for name, row := range map[string]struct {
		leaves  bool
		err     error
		pending bool
	}{
		"refused, and it goes": {true, forbidden, true}, "refused, and it stays": {false, forbidden, false},
		"broken, and it goes": {true, broken, false}, "done, and it goes": {true, nil, false},
	} {
		namespace := &corev1.Namespace{}
		if row.leaves {
			namespace.DeletionTimestamp = &metav1.Time{Time: today}
		}
		got := whileDeleted(namespace, "a", row.err)
		if pending := (*pendingError)(nil); errors.As(got, &pending) != row.pending || !row.pending && !errors.Is(got, row.err) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
