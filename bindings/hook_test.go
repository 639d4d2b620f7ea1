package bindings_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// withUsers is a workload whose bindings have users of their own.
const withUsers = `
secrets: [{name: admin}]
components:
- name: db
  ports: [{name: sql, port: 5432}]
  container:
    image: db
    resources: {cpu: 10m, memory: 16Mi}
bindings:
  secrets: [{name: password}]
  bind:
    image: db
    command: ["true"]
    env: {ADMIN: "${secrets.admin}", NAME: "${binding.name}", PASSWORD: "${binding.secrets.password}"}
    resources: {cpu: 10m, memory: 16Mi}
  unbind:
    image: db
    command: ["true"]
    env: {ADMIN: "${secrets.admin}", NAME: "${binding.name}"}
    resources: {cpu: 10m, memory: 16Mi}
credentials: {user: "${binding.name}", password: "${binding.secrets.password}", host: "${components.db.host}"}
`

// hooked is an instance that runs a workload on one cluster.
type hooked struct {
	*fixture
	cluster  string
	instance *v1alpha1.ServiceInstance

	mu   sync.Mutex
	seen map[types.UID]string // the names of the Jobs that were let run in its namespace
}

// deliverWorkload creates an instance, delivers a workload and records it.
func (f *fixture) deliverWorkload(t *testing.T, document string) *hooked {
	t.Helper()
	h := &hooked{fixture: f, cluster: clusters[0], instance: f.instance(t), seen: map[types.UID]string{}}
	h.run(t, document)
	jobs, err := kubernetes.NewForConfigOrDie(f.planes[h.cluster].Config()).BatchV1().Jobs(h.namespaceThere()).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(jobs.Stop)
	go func() {
		for event := range jobs.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok && event.Type != watch.Deleted && !*job.Spec.Suspend {
				h.mu.Lock()
				h.seen[job.UID] = job.Name
				h.mu.Unlock()
			}
		}
	}()
	return h
}

func (h *hooked) namespaceThere() string { return v1alpha1.MemberNamespace(h.instance.Name) }

// run delivers a workload, as an update does.
func (h *hooked) run(t *testing.T, document string) {
	t.Helper()
	plan := &v1alpha1.WorkloadPlan{}
	if err := yaml.UnmarshalStrict([]byte(document), plan); err != nil {
		t.Fatal(err)
	}
	secrets, _ := workload.Secrets(nil).Complete(plan.Secrets)
	sealed, err := secrets.SealInstance(h.instance, h.keys)
	if err != nil {
		t.Fatal(err)
	}
	state := h.instance.Spec.Desired
	footprint, err := workload.FootprintOf(plan, nil, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	order, err := workload.Of(plan, h.instance, &state, h.keys, secrets)
	if err != nil {
		t.Fatal(err)
	}
	placement := v1alpha1.Placement{Cluster: h.cluster, Reserved: footprint.Takes}
	driver := &kube.Driver{Connections: h.connections, Hub: hubID}
	eventually(t, "delivery", func(ctx context.Context) (bool, error) {
		return driver.Deliver(ctx, delivery.Delivery{Instance: h.instance, Placement: placement, Workload: order}) == nil, nil
	})
	h.instance.Status.SealedSecrets = sealed
	h.instance.Status.Delivered = &v1alpha1.DeliveredState{State: state, Decision: v1alpha1.Decision{
		Generation: h.instance.Generation, Placements: []v1alpha1.Placement{placement}, Workload: plan,
	}}
	if err := h.Status().Update(t.Context(), h.instance); err != nil {
		t.Fatal(err)
	}
}

// ran returns how many Jobs of a hook were let run.
func (h *hooked) ran(kind string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(slices.DeleteFunc(slices.Collect(maps.Values(h.seen)), func(name string) bool { return !strings.HasPrefix(name, kind+"-") }))
}

// nothingOf waits until nothing of a hook is left.
func (h *hooked) nothingOf(t *testing.T) {
	t.Helper()
	eventually(t, "nothing of the hooks is left", func(ctx context.Context) (bool, error) {
		for _, list := range []client.ObjectList{
			&batchv1.JobList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &networkingv1.NetworkPolicyList{},
		} {
			err := h.admin[h.cluster].List(ctx, list, client.InNamespace(h.namespaceThere()), client.HasLabels{v1alpha1.LabelBinding})
			if err != nil || meta.LenList(list) > 0 {
				return false, err
			}
		}
		return true, nil
	})
}

// user is the content of the credentials of withUsers.
type user struct{ User, Password, Host string }

func (h *hooked) user(t *testing.T, b *v1alpha1.ServiceBinding) (u user) {
	t.Helper()
	object, err := h.keys.Unseal(b.Status.SealedCredentials, seal.Owner("ServiceBinding", b.Namespace, b.Name, string(b.UID)))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(object.Reveal(), &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestWorkloads shares one member cluster among tests that each have an instance of their own.
func TestWorkloads(t *testing.T) {
	f := newFixtureOf(t, clusters[:1], usualRights, 100*time.Millisecond, controlplane.Node{Name: "node-1"})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"each binding has a user of its own", eachBindingHasAUser},
		{"data that was restored gets its users again", restoredData},
		{"a bind hook that fails leaves nothing and says why", aBindHookThatFails},
		{"an unbind hook that fails is tried again", anUnbindHookThatFails},
		{"an unbind hook runs where the instance was", hooksWhereTheInstanceWas},
		{"credentials have what the bind hook returned", resultsOfAHook},
		{"results that are wrong fail the bind and leave nothing", wrongResults},
		{"a hook may write its results and nothing else", rightsOfAHook},
		{"what goes with its instance needs no hook", noHookWithoutAnInstance},
		{"everyone reaches public ports", publicAddresses},
		{"every request may fail", hooksSurviveFailures},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, f)
		})
	}
}

func eachBindingHasAUser(t *testing.T, f *fixture) {
	h := f.deliverWorkload(t, withUsers)
	first, second := f.bound(t, f.bind(t, h.instance, "1", "")), f.bound(t, f.bind(t, h.instance, "2", ""))
	a, b := h.user(t, first), h.user(t, second)
	if a.User == b.User || a.Password == b.Password || len(a.User) != 17 || len(a.Password) != 32 {
		t.Errorf("the users are %s and %s, their passwords have %d and %d characters", a.User, b.User, len(a.Password), len(b.Password))
	}
	if want := "db." + h.namespaceThere() + ".svc"; a.Host != want {
		t.Errorf("the host is %s, want %s", a.Host, want)
	}
	if status, err := json.Marshal(first); err != nil || bytes.Contains(status, []byte(a.Password)) {
		t.Errorf("the password is in the binding: %v", err)
	}
	if first.Status.ExpiresAt != nil {
		t.Error("the credentials expire, and there is no token")
	}
	h.nothingOf(t)
	if n := h.ran("bind"); n != 2 {
		t.Errorf("the bind hook ran %d times for 2 bindings", n)
	}
	accounts := &corev1.ServiceAccountList{}
	if err := f.admin[h.cluster].List(t.Context(), accounts, client.InNamespace(h.namespaceThere()), client.HasLabels{v1alpha1.LabelBinding}); err != nil || len(accounts.Items) > 0 {
		t.Errorf("%d accounts were made: %v", len(accounts.Items), err)
	}
	f.unbound(t, first)
	if n := h.ran("unbind"); n != 1 {
		t.Errorf("the unbind hook ran %d times", n)
	}
	h.nothingOf(t)
}

func restoredData(t *testing.T, f *fixture) {
	h := f.deliverWorkload(t, withUsers)
	b := f.bound(t, f.bind(t, h.instance, "1", ""))
	before := h.user(t, b)
	h.nothingOf(t)
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(h.instance), h.instance); err != nil {
		t.Fatal(err)
	}
	h.instance.Status.Restored = &v1alpha1.Restored{Request: "b0 * now", Backup: "b0", At: b.Status.Operation.FinishedAt}
	if err := f.Status().Update(t.Context(), h.instance); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bind hook runs again", func(context.Context) (bool, error) { return h.ran("bind") > 1, nil })
	h.nothingOf(t)
	if after := h.user(t, f.bound(t, b)); after != before {
		t.Errorf("the credentials change from %+v to %+v", before, after)
	}
	f.unbound(t, b)
}

func aBindHookThatFails(t *testing.T, f *fixture) {
	h := f.deliverWorkload(t, strings.Replace(withUsers, `["true"]`, `["false"]`, 1))
	b := f.bind(t, h.instance, "1", "")
	f.until(t, b, "bind fails", in(v1alpha1.StateFailed))
	if got, want := b.Status.Operation.Description, "the bind hook failed: exit code 1"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	f.unbound(t, b)
	if n := h.ran("unbind"); n != 1 {
		t.Errorf("the unbind hook ran %d times after a bind that failed", n)
	}
	h.nothingOf(t)
}

func anUnbindHookThatFails(t *testing.T, f *fixture) {
	before, after, _ := strings.Cut(withUsers, "  unbind:")
	h := f.deliverWorkload(t, before+"  unbind:"+strings.Replace(after, `["true"]`, `["false"]`, 1))
	b := f.bound(t, f.bind(t, h.instance, "1", ""))
	if err := f.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	f.until(t, b, "the failure is told", func(b *v1alpha1.ServiceBinding) bool {
		return b.Status.Operation.Type == v1alpha1.OperationUnbind && b.Status.Operation.Description == "the unbind hook failed: exit code 1"
	})
	eventually(t, "it is tried again", func(context.Context) (bool, error) { return h.ran("unbind") > 1, nil })
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(h.instance), h.instance); err != nil {
		t.Fatal(err)
	}
	h.run(t, withUsers)
	f.gone(t, b)
	h.nothingOf(t)
}

func noHookWithoutAnInstance(t *testing.T, f *fixture) {
	h := f.deliverWorkload(t, withUsers)
	b := f.bound(t, f.bind(t, h.instance, "1", ""))
	if err := f.Delete(t.Context(), h.instance); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	f.unbound(t, b)
	if n := h.ran("unbind"); n != 0 {
		t.Errorf("the unbind hook ran %d times, for %s", n, time.Since(began))
	}
}
