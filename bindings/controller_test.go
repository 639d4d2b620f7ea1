package bindings_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestOnClusters shares two member clusters among tests that each have an
// instance of their own.
func TestOnClusters(t *testing.T) {
	f := newFixture(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"bind gives credentials that work at once on every cluster", bindGivesCredentials},
		{"a view binding may read and nothing else", aViewBindingMayRead},
		{"an edit binding may not raise itself", anEditBindingMayNotRaiseItself},
		{"a binding that had a role in its namespace gets the cluster's", aFormerBindingGetsTheClustersRole},
		{"unbind revokes at once", unbindRevokes},
		{"rotation leaves both valid until the old one goes", rotationLeavesBothValid},
		{"bind waits until the instance is delivered", bindWaitsForDelivery},
		{"bind fails when the instance is being deprovisioned", bindFailsWhenDeprovisioning},
		{"bind fails when the instance is gone", bindFailsWhenGone},
		{"unbind waits for a finalizer and names it", unbindWaitsForAFinalizer},
		{"unbind without the namespace has nothing to do", unbindWithoutNamespace},
		{"unbind leaves a foreign namespace alone", unbindLeavesForeign},
		{"unbind waits for an account on a cluster that was left", unbindWaitsWhereTheInstanceWas},
		{"unbind waits for a cluster that was left until it is known to be away", unbindLeavesASilentCluster},
		{"unbind waits for a cluster that does not answer", unbindWaitsForCluster},
		{"unbind leaves a cluster that does not answer and is taken out of the inventory", unbindLeavesAForsakenCluster},
		{"bind survives a lost status write", bindSurvivesALostWrite},
		{"every request may fail", bindSurvivesFailures},
		{"a binding follows an instance that goes and comes back at once", followsAtOnce},
		{"bind writes status twice", bindWritesStatusTwice},
		{"a binding follows its instance to another cluster", aBindingFollows},
		{"credentials are renewed once when they are asked for", credentialsAreRenewed},
		{"without a policy they live for a year", credentialsLiveForAYear},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, f)
		})
	}
}

func listPods(ctx context.Context, c client.Client, namespace string) error {
	return c.List(ctx, &corev1.PodList{}, client.InNamespace(namespace))
}

func bindGivesCredentials(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	began := time.Now()
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	t.Logf("bound on %d clusters in %s", len(clusters), time.Since(began).Round(time.Millisecond))
	c := f.open(t, b)

	if !slices.Equal(b.Status.Clusters, clusters) || len(c.Clusters) != len(clusters) {
		t.Fatalf("clusters are %q in status and %d in the credentials, want %q", b.Status.Clusters, len(c.Clusters), clusters)
	}
	for i, name := range clusters {
		if c.Clusters[i].Name != name {
			t.Errorf("cluster %d is %s, want %s", i, c.Clusters[i].Name, name)
		}
		// Without waiting: the issued credentials work at once.
		if err := listPods(t.Context(), f.consumer(t, c, name), c.Clusters[i].Namespace); err != nil {
			t.Errorf("list pods on %s: %v", name, err)
		}
	}
	if first := c.Clusters[0]; c.Server != first.Server || c.Token != first.Token || c.Namespace != first.Namespace || c.CertificateAuthority != first.CertificateAuthority {
		t.Error("the fields at the top are not the first cluster's")
	}
	config, err := clientcmd.Load([]byte(c.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	if current := config.Contexts[config.CurrentContext]; config.CurrentContext != clusters[0] || current.Namespace != c.Namespace || len(config.Contexts) != 2 {
		t.Errorf("current context is %s in %s of %d, want %s", config.CurrentContext, current.Namespace, len(config.Contexts), clusters[0])
	}

	if left := time.Until(b.Status.ExpiresAt.Time); left < 59*time.Minute || left > time.Hour {
		t.Errorf("expires in %s, want an hour", left)
	}
	if ahead := b.Status.ExpiresAt.Sub(b.Status.RenewBefore.Time); ahead != 5*time.Minute {
		t.Errorf("is to be renewed %s before its expiry, want 5m", ahead)
	}
	for i, endpoint := range endpointsOf(t, c) {
		if !slices.ContainsFunc(b.Status.Endpoints, func(e v1alpha1.Endpoint) bool {
			return e.Host == endpoint.Hostname() && slices.Contains(e.Ports, endpoint.Port()) && e.Protocol == "tcp"
		}) {
			t.Errorf("endpoints are %v, want that of %s among them", b.Status.Endpoints, clusters[i])
		}
	}
	if !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("conditions are %v, want Ready", b.Status.Conditions)
	}
	if strings.Contains(string(b.Status.SealedCredentials), c.Token) {
		t.Error("the token is in status in clear")
	}
}

func endpointsOf(t *testing.T, c credentials) []*url.URL {
	t.Helper()
	var out []*url.URL
	for _, one := range c.Clusters {
		server, err := url.Parse(one.Server)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, server)
	}
	return out
}

func aViewBindingMayRead(t *testing.T, f *fixture) {
	c := f.open(t, f.bound(t, f.bind(t, f.deliver(t, f.instance(t)), "binding-1", "view")))
	consumer := f.consumer(t, c, "")
	if err := listPods(t.Context(), consumer, c.Namespace); err != nil {
		t.Errorf("list pods: %v", err)
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "settings"}}
	forbidden(t, "create a ConfigMap", consumer.Create(t.Context(), config))
	forbidden(t, "list Secrets", consumer.List(t.Context(), &corev1.SecretList{}, client.InNamespace(c.Namespace)))
}

func anEditBindingMayNotRaiseItself(t *testing.T, f *fixture) {
	c := f.open(t, f.bound(t, f.bind(t, f.deliver(t, f.instance(t)), "binding-1", "edit")))
	consumer := f.consumer(t, c, "")
	here := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: c.Namespace, Name: name} }
	if err := consumer.Create(t.Context(), &corev1.Secret{ObjectMeta: here("plain")}); err != nil {
		t.Errorf("create a Secret: %v", err)
	}
	unbounded := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"hard":{"requests.cpu":"1000"}}}`))
	forbidden(t, "raise the quota", consumer.Patch(t.Context(), &corev1.ResourceQuota{ObjectMeta: here("sluice")}, unbounded))
	forbidden(t, "create a RoleBinding", consumer.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: here("more"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
	}))
	forbidden(t, "create a ServiceAccount", consumer.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: here("another")}))
	forbidden(t, "list pods elsewhere", listPods(t.Context(), consumer, "kube-system"))
	forbidden(t, "list namespaces", consumer.List(t.Context(), &corev1.NamespaceList{}))
	err := consumer.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	})
	if !apierrors.IsInvalid(err) {
		t.Errorf("create a token without expiry: %v, want it refused", err)
	}
}

// aFormerBindingGetsTheClustersRole: a binding of a Sluice that made a Role in each namespace.
func aFormerBindingGetsTheClustersRole(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	ns := v1alpha1.MemberNamespace(instance.Name)
	former := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: v1alpha1.MemberRole("view")}
	name := newBinding(f.namespace, instance, "binding-1", "view").Name
	for _, cluster := range clusters {
		if err := f.admin[cluster].Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, RoleRef: former}); err != nil {
			t.Fatal(err)
		}
	}
	c := f.open(t, f.bound(t, f.bind(t, instance, "binding-1", "view")))
	for _, cluster := range clusters {
		if err := listPods(t.Context(), f.consumer(t, c, cluster), ns); err != nil {
			t.Errorf("list pods on %s: %v", cluster, err)
		}
	}
}

func forbidden(t *testing.T, what string, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v, want it forbidden", what, err)
	}
}

func credentialsAreRenewed(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	before, issued := f.open(t, b), b.Status.IssuedAt
	if issued == nil || b.WantsRenewal(issued.Add(29*time.Minute)) || !b.WantsRenewal(issued.Add(31*time.Minute)) {
		t.Fatalf("issued at %v for an hour, a renewal is wanted at the wrong time", issued)
	}
	// Times have no fractions: credentials issued a second later have another expiry.
	eventually(t, "the next second", func(context.Context) (bool, error) { return time.Since(issued.Time) > time.Second, nil })
	wish := b.DeepCopy()
	wish.AskRenewal()
	if err := f.Patch(t.Context(), wish, client.MergeFrom(b)); err != nil {
		t.Fatal(err)
	}
	f.until(t, b, "the wish is granted", func(b *v1alpha1.ServiceBinding) bool {
		return b.Annotations[v1alpha1.AnnotationRenew] != "" && !b.RenewalAsked()
	})
	after, once := f.open(t, b), b.ResourceVersion
	if !b.Status.IssuedAt.After(issued.Time) {
		t.Errorf("issued at %v, as before", b.Status.IssuedAt)
	}
	for name, c := range map[string]credentials{"before": before, "after": after} {
		for i := range c.Clusters {
			if err := listPods(t.Context(), f.consumer(t, c, c.Clusters[i].Name), c.Clusters[i].Namespace); err != nil {
				t.Errorf("credentials of %s, on %s: %v", name, c.Clusters[i].Name, err)
			}
		}
	}
	if before.Token == after.Token {
		t.Error("the same token")
	}
	// A reconcile for another reason does not issue again.
	touched := b.DeepCopy()
	metav1.SetMetaDataAnnotation(&touched.ObjectMeta, "test", "touched")
	if err := f.Patch(t.Context(), touched, client.MergeFrom(b)); err != nil {
		t.Fatal(err)
	}
	other := f.bound(t, f.bind(t, instance, "binding-2", "edit")) // is reconciled after it
	f.until(t, b, "what is there", func(*v1alpha1.ServiceBinding) bool { return true })
	if now := f.open(t, b); now.Token != after.Token {
		t.Errorf("issued again, at version %s after %s", b.ResourceVersion, once)
	}
	f.unbound(t, other)
	f.unbound(t, b)
	for name, c := range map[string]credentials{"before": before, "after": after} {
		eventually(t, "the credentials of "+name+" end with the binding", func(ctx context.Context) (bool, error) {
			return apierrors.IsUnauthorized(listPods(ctx, f.consumer(t, c, ""), c.Namespace)), nil
		})
	}
}

// credentialsLiveForAYear: most platforms read credentials once, and real API servers grant
// the lifetime that is requested.
func credentialsLiveForAYear(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	b := newBinding(f.namespace, instance, "binding-1", "edit")
	b.Spec.Credentials = v1alpha1.CredentialsPolicy{}
	if err := f.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	f.bound(t, b)
	const year = 365 * 24 * time.Hour
	if life := b.Status.ExpiresAt.Sub(b.Status.IssuedAt.Time); life < year-time.Minute || life > year+time.Minute {
		t.Errorf("they live for %v", life)
	}
	if left := b.Status.ExpiresAt.Sub(b.Status.RenewBefore.Time); left < year/5-time.Minute || left > year/5+time.Minute {
		t.Errorf("they are to be renewed when %v are left", left)
	}
}

// move records where an instance is, and which clusters it has left.
func (f *fixture) move(t *testing.T, instance *v1alpha1.ServiceInstance, left []v1alpha1.LeftPlacement, placements ...v1alpha1.Placement) {
	t.Helper()
	instance.Status.Delivered.Decision.Placements, instance.Status.Left = placements, left
	if err := f.Status().Update(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
}

func aBindingFollows(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	here, there := instance.Status.Delivered.Decision.Placements[0], instance.Status.Delivered.Decision.Placements[1]
	on := func(left []v1alpha1.LeftPlacement, placements ...v1alpha1.Placement) {
		t.Helper()
		f.move(t, instance, left, placements...)
	}
	on(nil, here)
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	before := f.open(t, b)

	on([]v1alpha1.LeftPlacement{{Placement: here, Since: metav1.Now()}}, there)
	f.until(t, b, "the binding is issued there", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Issued, clusters[1:]) })
	after := f.open(t, b)
	if len(after.Clusters) != 1 || after.Clusters[0].Name != clusters[1] {
		t.Fatalf("credentials are for %v", after.Clusters)
	}
	for where, c := range map[string]credentials{"left": before, "entered": after} {
		if err := listPods(t.Context(), f.consumer(t, c, ""), c.Namespace); err != nil {
			t.Errorf("on the cluster that was %s: %v", where, err)
		}
	}
	other := f.bound(t, f.bind(t, instance, "binding-2", "edit"))
	on([]v1alpha1.LeftPlacement{{Placement: there, Since: metav1.Now()}}, here)
	f.until(t, other, "the other binding is issued here", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Issued, clusters[:1]) })
	f.unbound(t, other)
	accounts := &corev1.ServiceAccountList{}
	if err := f.admin[clusters[1]].List(t.Context(), accounts, client.MatchingLabels{v1alpha1.LabelBinding: other.Name}); err != nil || len(accounts.Items) > 0 {
		t.Errorf("unbound, it has %d accounts where the instance was: %v", len(accounts.Items), err)
	}
	on([]v1alpha1.LeftPlacement{{Placement: here, Since: metav1.Now()}}, there)
	f.until(t, b, "the binding is issued there again", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Issued, clusters[1:]) })
	if b.Status.Operation.Type != v1alpha1.OperationBind || b.Status.Operation.State != v1alpha1.StateSucceeded {
		t.Errorf("operation is %+v", b.Status.Operation)
	}

	on(nil, there)
	f.until(t, b, "what was left is forgotten", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Clusters, clusters[1:]) })

	on([]v1alpha1.LeftPlacement{{Placement: there, Since: metav1.Now()}}) // displaced
	f.until(t, b, "nothing is issued any more", func(b *v1alpha1.ServiceBinding) bool { return len(b.Status.Issued) == 0 })
	on(nil, there)
	f.until(t, b, "the binding is issued anew", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Issued, clusters[1:]) })
	f.unbound(t, b)
}

// followsAtOnce has an instance go and come back before the controller's cache has what the controller has written about
// its binding: the binding follows all the same.
func followsAtOnce(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	here := instance.Status.Delivered.Decision.Placements[0]
	f.move(t, instance, nil, here)
	b := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	eventually(t, "the controller sees that it is bound", func(ctx context.Context) (bool, error) {
		var seen v1alpha1.ServiceBinding
		err := f.cached.Get(ctx, client.ObjectKeyFromObject(b), &seen)
		return len(seen.Status.Issued) > 0, err
	})
	f.unseen.Lock() // what happens to bindings
	see := sync.OnceFunc(f.unseen.Unlock)
	defer see()
	f.move(t, instance, []v1alpha1.LeftPlacement{{Placement: here, Since: metav1.Now()}}) // displaced
	f.until(t, b, "nothing is issued any more", func(b *v1alpha1.ServiceBinding) bool { return len(b.Status.Issued) == 0 })
	f.move(t, instance, nil, here)
	eventually(t, "the controller sees that the instance is back", func(ctx context.Context) (bool, error) {
		var seen v1alpha1.ServiceInstance
		err := f.cached.Get(ctx, client.ObjectKeyFromObject(instance), &seen)
		return err == nil && seen.ResourceVersion == instance.ResourceVersion, err
	})
	see()
	f.until(t, b, "the binding is issued anew", func(b *v1alpha1.ServiceBinding) bool { return slices.Equal(b.Status.Issued, clusters[:1]) })
	f.unbound(t, b)
}

func rotationLeavesBothValid(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	old := f.bound(t, f.bind(t, instance, "binding-1", "edit"))
	successor := newBinding(f.namespace, instance, "binding-2", "edit")
	successor.Spec.PredecessorBindingID = "binding-1"
	if err := f.Create(t.Context(), successor); err != nil {
		t.Fatal(err)
	}
	f.bound(t, successor)
	before, after := f.open(t, old), f.open(t, successor)
	for name, c := range map[string]credentials{"old": before, "new": after} {
		if err := listPods(t.Context(), f.consumer(t, c, ""), c.Namespace); err != nil {
			t.Errorf("the %s binding: %v", name, err)
		}
	}
	f.unbound(t, old)
	if err := listPods(t.Context(), f.consumer(t, after, ""), after.Namespace); err != nil {
		t.Errorf("the new binding without the old one: %v", err)
	}
}

func bindWaitsForDelivery(t *testing.T, f *fixture) {
	instance := f.instance(t)
	b := f.bind(t, instance, "binding-1", "edit")
	f.until(t, b, "bind says what it waits for", func(b *v1alpha1.ServiceBinding) bool {
		return in(v1alpha1.StateInProgress)(b) && b.Status.Operation.Description == "the service instance is not delivered yet"
	})
	f.deliver(t, instance)
	f.bound(t, b)
}

func bindFailsWhenDeprovisioning(t *testing.T, f *fixture) {
	instance := f.deliver(t, f.instance(t))
	if err := f.Delete(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the controller has seen the deletion", func(ctx context.Context) (bool, error) {
		err := f.cached.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return !instance.DeletionTimestamp.IsZero(), err
	})
	b := f.bind(t, instance, "binding-1", "edit")
	f.until(t, b, "bind fails", in(v1alpha1.StateFailed))
	if want := "the service instance is being deprovisioned"; b.Status.Operation.Description != want || len(b.Status.Clusters) != 0 {
		t.Errorf("failed with %q on %q, want %q and no cluster touched", b.Status.Operation.Description, b.Status.Clusters, want)
	}
	f.unbound(t, b)
}

func bindFailsWhenGone(t *testing.T, f *fixture) {
	instance := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.InstanceName("platform-1", t.Name())}}
	b := f.bind(t, instance, "binding-1", "edit")
	f.until(t, b, "bind fails", in(v1alpha1.StateFailed))
	if want := "the service instance is gone"; b.Status.Operation.Description != want {
		t.Errorf("failed with %q, want %q", b.Status.Operation.Description, want)
	}
}
