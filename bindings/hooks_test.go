package bindings

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// hookOn returns the bind hook of binding sb-1 in namespace n of a cluster; it returns the results that are named.
func hookOn(t *testing.T, results []string, objects ...client.Object) *hook {
	t.Helper()
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	i := deliveredTo(plain("a"))
	process := v1alpha1.WorkloadProcess{Image: "db", Command: []string{"true"}}
	i.Status.Delivered.Decision.Workload = &v1alpha1.WorkloadPlan{
		Components: []v1alpha1.WorkloadComponent{{Name: "db"}},
		Bindings:   &v1alpha1.WorkloadBindings{Bind: &v1alpha1.WorkloadHook{WorkloadProcess: process, TimeoutSeconds: 5}, Results: results},
	}
	b := bindingOf("", nil)
	order, err := (&Controller{Keys: keys}).order(b, i)
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(liqo.Scheme).WithObjects(objects...).Build()
	return &hook{kind: workload.HookBind, order: order, client: c, namespace: "n", labels: map[string]string{v1alpha1.LabelBinding: "sb-1"}, starting: &sync.Map{}}
}

// A hook is started once, waited for, and gone after a failure; what it returned is read when it has ended well.
func TestRunsOfAHook(t *testing.T) {
	order := hookOn(t, []string{"id"}).order
	jobName, resultsName := order.HookName(workload.HookBind), order.ResultsName()
	job := func(change func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: jobName}}
		change(j)
		return j
	}
	ended := func(how batchv1.JobConditionType, reason string) *batchv1.Job {
		return job(func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, Reason: reason}}
		})
	}
	other := func(ended ...batchv1.JobConditionType) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "bind-other", Labels: map[string]string{v1alpha1.LabelBinding: "sb-2"}}}
		for _, how := range ended {
			j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: how, Status: corev1.ConditionTrue})
		}
		return j
	}
	returned := func(name, value string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: resultsName}, Data: map[string][]byte{name: []byte(value)}}
	}
	for name, row := range map[string]struct {
		results []string
		objects []client.Object
		want    map[string]string
		pending bool
		failed  bool
		there   bool // afterwards
	}{
		"not begun":              {pending: true, there: true},
		"running":                {objects: []client.Object{job(func(*batchv1.Job) {})}, pending: true, there: true},
		"while another runs":     {objects: []client.Object{other()}, pending: true},
		"when others have ended": {objects: []client.Object{other(batchv1.JobComplete)}, pending: true, there: true},
		"killed at its start":    {objects: []client.Object{job(func(j *batchv1.Job) { j.Spec.Suspend = ptr.To(true) })}, pending: true},
		"of an earlier failure":  {objects: []client.Object{job(func(j *batchv1.Job) { j.DeletionTimestamp, j.Finalizers = ptr.To(metav1.Now()), []string{"x/y"} })}, pending: true, there: true},
		"ended well":             {objects: []client.Object{ended(batchv1.JobComplete, "")}, there: true},
		"ended with results":     {results: []string{"id"}, objects: []client.Object{ended(batchv1.JobComplete, ""), returned("id", "42")}, want: map[string]string{"id": "42"}, there: true},
		"ended with others":      {results: []string{"id"}, objects: []client.Object{ended(batchv1.JobComplete, ""), returned("other", "42")}, failed: true},
		"ended without all":      {results: []string{"id"}, objects: []client.Object{ended(batchv1.JobComplete, "")}, failed: true},
		"results nobody asked":   {objects: []client.Object{ended(batchv1.JobComplete, ""), returned("id", "42")}, there: true},
		"failed":                 {objects: []client.Object{ended(batchv1.JobFailed, batchv1.JobReasonDeadlineExceeded)}, failed: true},
		"failed, with a leaving": {objects: []client.Object{ended(batchv1.JobFailed, batchv1.JobReasonBackoffLimitExceeded), returned("id", "42")}, results: []string{"id"}, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := hookOn(t, row.results, row.objects...)
			got, err := h.run(t.Context())
			failed := (*hookError)(nil)
			if !maps.Equal(got, row.want) || (pendingIn(err) != nil) != row.pending || errors.As(err, &failed) != row.failed || !row.pending && !row.failed && err != nil {
				t.Errorf("%v, %v; want %v, pending %t, failed %t", got, err, row.want, row.pending, row.failed)
			}
			var is batchv1.Job
			err = h.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: jobName}, &is)
			if (err == nil) != row.there {
				t.Fatalf("the Job is there: %v", err)
			}
			if name == "not begun" && (ptr.Deref(is.Spec.Suspend, false) || is.Labels[v1alpha1.LabelBinding] != "sb-1") {
				t.Errorf("it is started as %+v", is)
			}
			if secret := h.client.Get(t.Context(), client.ObjectKey{Namespace: "n", Name: resultsName}, &corev1.Secret{}); row.failed && secret == nil {
				t.Error("its results are left")
			}
		})
	}
}

// What a hook needs belongs to its Job, and ends with it.
func TestObjectsOfAHook(t *testing.T) {
	h := hookOn(t, nil)
	if err := h.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var secrets corev1.SecretList
	if err := h.client.List(t.Context(), &secrets); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Kind != "Job" || s.OwnerReferences[0].Name != h.order.HookName(h.kind) || s.Labels[v1alpha1.LabelBinding] != "sb-1" {
			t.Errorf("%s belongs to %+v, labels %v", s.Name, s.OwnerReferences, s.Labels)
		}
	}
	for _, was := range []bool{false, true} {
		if gone, err := h.end(t.Context()); err != nil || gone != was {
			t.Errorf("it was gone before is %t, %v; want %t", gone, err, was)
		}
	}
}

// A start that fails at any write says so and writes nothing more; results that cannot be read are no results.
func TestHooksOnAClusterThatFails(t *testing.T) {
	failed := errors.New("no")
	for at := 1; ; at++ {
		h, writes := hookOn(t, nil), 0
		h.client = interceptor.NewClient(h.client.(client.WithWatch), interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if writes++; writes == at {
				return failed
			}
			return c.Apply(ctx, o, options...)
		}})
		err := h.start(t.Context())
		if writes < at {
			if err != nil || at < 3 {
				t.Errorf("%d writes, %v", writes, err)
			}
			break
		}
		if !errors.Is(err, failed) || writes > at {
			t.Errorf("write %d of %d fails: %v", at, writes, err)
		}
	}
	h := hookOn(t, []string{"id"})
	h.client = interceptor.NewClient(h.client.(client.WithWatch), interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return failed
	}})
	if _, err := h.results(t.Context()); !errors.Is(err, failed) {
		t.Errorf("results that cannot be read: %v", err)
	}
	if _, err := h.run(t.Context()); !errors.Is(err, failed) {
		t.Errorf("a Job that cannot be read: %v", err)
	}
}

// A hook has not ended as long as its Job, or a Secret of it, cannot be deleted.
func TestHooksThatCannotBeDeleted(t *testing.T) {
	failed := errors.New("no")
	for name, is := range map[string]func(client.Object) bool{
		"the Job":    func(o client.Object) bool { _, ok := o.(*batchv1.Job); return ok },
		"the Secret": func(o client.Object) bool { _, ok := o.(*corev1.Secret); return ok },
	} {
		h := hookOn(t, nil)
		h.client = interceptor.NewClient(h.client.(client.WithWatch), interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if is(o) {
				return failed
			}
			return c.Delete(ctx, o, options...)
		}})
		if gone, err := h.end(t.Context()); gone || !errors.Is(err, failed) {
			t.Errorf("%s stays: gone is %t, %v", name, gone, err)
		}
	}
}

// A hook with results reaches the API server at the address of its Service and at those behind it, as far as Sluice may see
// them.
func TestWhereHooksReachTheAPIServer(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	}
	service := &corev1.Service{ObjectMeta: meta("kubernetes"), Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1", "fd00::1"}, Ports: []corev1.ServicePort{{Port: 443}}}}
	behind := &discoveryv1.EndpointSlice{
		ObjectMeta: meta("kubernetes"), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}}},
		Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(6443))}, {}},
	}
	other := &discoveryv1.EndpointSlice{ObjectMeta: meta("other"), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.9"}}}}
	for name, row := range map[string]struct {
		denied, broken string
		addresses      []string
		ports          []int32
	}{
		"both":                      {addresses: []string{"10.96.0.1/32", "fd00::1/128", "192.0.2.7/32"}, ports: []int32{443, 6443}},
		"only the Service":          {denied: "*v1.EndpointSliceList", addresses: []string{"10.96.0.1/32", "fd00::1/128"}, ports: []int32{443}},
		"only what is behind":       {denied: "*v1.ServiceList", addresses: []string{"192.0.2.7/32"}, ports: []int32{6443}},
		"the Service is not listed": {broken: "*v1.ServiceList"},
		"nor what is behind":        {broken: "*v1.EndpointSliceList"},
	} {
		h := hookOn(t, []string{"id"})
		h.client = fake.NewClientBuilder().WithScheme(liqo.Scheme).WithObjects(service, behind, other).
			WithIndex(&corev1.Service{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).
			WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				switch fmt.Sprintf("%T", list) {
				case row.denied:
					return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
				case row.broken:
					return apierrors.NewInternalError(errors.New("broken"))
				}
				return c.List(ctx, list, options...)
			}}).Build()
		api, err := h.apiServer(t.Context())
		if (err != nil) != (row.broken != "") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (!slices.Equal(api.Addresses, row.addresses) || !slices.Equal(api.Ports, row.ports)) {
			t.Errorf("%s: %+v", name, api)
		}
	}
}
