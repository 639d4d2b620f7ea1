package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/liqotech/liqo/pkg/consts"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
)

// readerOf is a reader of the cluster c, for the hub "hub", that has listed everything.
func readerOf(t *testing.T, kube kubernetes.Interface, inventory *placement.Inventory) *Nodes {
	t.Helper()
	n := NewNodes(t.Context(), NodesOptions{Kube: kube, Cluster: "c", HubID: "hub", Inventory: inventory, Changed: func() {}})
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n.Wait(patient)
	return n
}

// quotaOf is the quota of a namespace, of an instance unless that is empty.
func quotaOf(hub, instance, namespace, hard string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sluice", Labels: map[string]string{v1alpha1.LabelHub: hub}},
		Spec:       corev1.ResourceQuotaSpec{Hard: placementtest.Quantities(hard)},
	}
	if instance != "" {
		q.Labels[v1alpha1.LabelInstance] = instance
	}
	return q
}

// The namespace of an instance on a hub has a quota for the pods that run behind the hub.
func TestAnInstanceThatIsReachedThroughAHubUsesNothingThere(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.MemberNamespace("si-1"), Labels: map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelInstance: "si-1"},
	}}
	kube := fake.NewClientset(placementtest.Node("n", nil), namespace, quotaOf("hub", "si-1", namespace.Name, "requests.cpu=8"))
	for _, c := range []struct {
		through string
		want    string // cpu
	}{{"c", "0"}, {"another", "8"}, {"", "8"}} {
		inventory := placement.NewInventory()
		inventory.Reserve(placement.Holding{Instance: "si-1", Hub: c.through, Held: map[string]placement.Resources{"behind": {corev1.ResourceCPU: 8000}}})
		r, err := readerOf(t, kube, inventory).Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Foreign.Cpu().String(); got != c.want {
			t.Errorf("through %q: foreign cpu is %s, want %s", c.through, got, c.want)
		}
	}
}

// Pods that come over a peering are of an instance only in the namespaces that this hub isolates. Others are of a peering
// without Sluice, or of another hub's.
func TestPodsOverAPeeringAreForeignOutsideTheNamespacesOfThisHub(t *testing.T) {
	shadow := func(namespace string) *corev1.Pod {
		return placementtest.Pod(namespace, "n", func(p *corev1.Pod) {
			p.Labels = map[string]string{consts.ManagedByLabelKey: consts.ManagedByShadowPodValue}
		})
	}
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		quotas []runtime.Object
		with   error  // which reading the quotas fails
		want   string // cpu
	}{
		{"this hub's", shadow("x"), []runtime.Object{quotaOf("hub", "", "x", "count/pods=110")}, nil, "0"},
		{"another hub's", shadow("x"), []runtime.Object{quotaOf("other", "", "x", "count/pods=110")}, nil, "500m"},
		{"this hub's, elsewhere", shadow("x"), []runtime.Object{quotaOf("hub", "", "y", "count/pods=110")}, nil, "500m"},
		{"without Sluice", shadow("x"), nil, nil, "500m"},
		{"an instance of another hub", shadow("x"), []runtime.Object{quotaOf("other", "si-1", "x", "requests.cpu=2")}, nil, "2"},
		{"the quotas are not to be read", shadow("x"), nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil), "0"},
		{"not over a peering", placementtest.Pod("x", "n", nil), []runtime.Object{quotaOf("hub", "", "x", "count/pods=110")}, nil, "500m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kube := fake.NewClientset(append(c.quotas, placementtest.Node("n", nil), c.pod)...)
			kube.PrependReactor("list", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) { return c.with != nil, nil, c.with })
			r, err := readerOf(t, kube, placement.NewInventory()).Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Foreign.Cpu().String(); got != c.want {
				t.Errorf("foreign cpu is %s, want %s", got, c.want)
			}
		})
	}
}

// TestDevicesCountWhileAllOfThemIsRead reads a cluster as clusters before Kubernetes 1.34 are, and one that has not granted
// the right to read something.
func TestDevicesCountWhileAllOfThemIsRead(t *testing.T) {
	hides := &v1alpha1.MemberCluster{}
	hides.Name, hides.Spec.Sell = "c", &v1alpha1.Sale{Hide: []corev1.ResourceName{v1alpha1.DevicesResource("every")}}
	for _, c := range []struct {
		name     string
		fails    string // a resource whose reading fails
		with     error
		cluster  *v1alpha1.MemberCluster
		reserved placement.Resources
		want     string
	}{
		{"it is read", "", nil, nil, nil, "every=1,large=0"},
		{"another class is hidden", "", nil, hides, nil, "large=1"},
		{"another class is hidden, and an instance has it", "", nil, hides, placement.Resources{v1alpha1.DevicesResource("every"): 1}, "every=1,large=0"},
		{"the cluster does not serve it", "*", apierrors.NewNotFound(schema.GroupResource{}, ""), nil, nil, ""},
		{"the classes are not to be read", "deviceclasses", apierrors.NewForbidden(schema.GroupResource{}, "", nil), nil, nil, ""},
		{"the claims are not to be read", "resourceclaims", apierrors.NewForbidden(schema.GroupResource{}, "", nil), nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			kube := fake.NewClientset(placementtest.Node("a", nil), deviceClass("large", atLeast("40Gi")), deviceClass("every", ""), published("a", gpu("0", "80Gi"), gpu("1", "16Gi")))
			kube.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				ours := action.GetResource().Group == resourcev1.GroupName && c.with != nil
				return ours && slices.Contains([]string{"*", action.GetResource().Resource}, c.fails), nil, c.with
			})
			inventory := placement.NewInventory()
			if c.cluster != nil {
				inventory.UpsertCluster(placement.ClusterOf(c.cluster, time.Time{}))
			}
			if c.reserved != nil {
				inventory.Reserve(placement.Holding{Instance: "si-1", Held: map[string]placement.Resources{"c": c.reserved}})
			}
			r, err := readerOf(t, kube, inventory).Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := byClass(r.Allocatable); got != c.want {
				t.Errorf("allocatable are %q, want %q", got, c.want)
			}
		})
	}
}

// Each name becomes several series, and the answer about a fleet has a bound, too.
func TestTheNamesOfNodesAreBounded(t *testing.T) {
	names := func(n int) (some []string) {
		for i := range n {
			some = append(some, fmt.Sprintf("name-%d", i))
		}
		return some
	}
	nodeWith := func(resources int, allocatable bool, more ...corev1.ResourceName) runtime.Object {
		return placementtest.Node("n", func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{}
			for _, name := range names(resources) {
				n.Status.Capacity[corev1.ResourceName("example.com/"+name)] = resource.MustParse("1")
			}
			for _, name := range more {
				n.Status.Capacity[name] = resource.MustParse("1")
			}
			if allocatable {
				n.Status.Allocatable = n.Status.Capacity
			}
		})
	}
	classes := func(n int) (all []runtime.Object) {
		for _, name := range names(n) {
			all = append(all, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return all
	}
	var used []string
	for _, name := range names(mostNames + 1) {
		used = append(used, "requests.example.com/"+name+"=1")
	}
	var kinds []runtime.Object
	for _, name := range names(mostKinds + 1) {
		kinds = append(kinds, placementtest.Node(name, func(n *corev1.Node) { n.Status.NodeInfo.Architecture = name }))
	}
	long := metav1.ObjectMeta{Name: strings.Repeat("x", 254)}
	const others = 3 // cpu, memory and pods
	for _, c := range []struct {
		name    string
		objects []runtime.Object
		want    string // the error; empty if there is none
	}{
		{"as many as are allowed", append(classes(mostNames), nodeWith(mostNames-others, true)), ""},
		{"a resource too many", append(classes(1), nodeWith(mostNames-others+1, true)), "it has 65 resources and 1 storage classes, and at most 64 of each are allowed"},
		{"one that pods do not get", []runtime.Object{nodeWith(mostNames-others+1, false)}, "it has 65 resources and 0"},
		{"one that another hub has reserved", []runtime.Object{quotaOf("other", "si-1", "x", strings.Join(used, ","))}, "it has 65 resources and 0"},
		{"a storage class too many", append(classes(mostNames+1), nodeWith(1, true)), "it has 4 resources and 65"},
		{"an architecture too many", kinds, "its nodes have 17 architectures and 0 operating systems, and at most 16 of each are allowed"},
		{"the name of a resource too long", []runtime.Object{nodeWith(0, true, corev1.ResourceName("example.com/"+strings.Repeat("x", 306)))}, "has 318 characters, and at most 317 are allowed"},
		{"the name of a storage class too long", []runtime.Object{&storagev1.StorageClass{ObjectMeta: long}}, "has 254 characters, and at most 253 are allowed"},
		{"the name of a device class too long", []runtime.Object{&resourcev1.DeviceClass{ObjectMeta: long}}, "has 254 characters, and at most 253 are allowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readerOf(t, fake.NewClientset(c.objects...), placement.NewInventory()).Read(t.Context())
			if unknown := (*UnknownError)(nil); c.want == "" && err != nil || c.want != "" && (!errors.As(err, &unknown) || unknown.Reason != ReasonInvalid || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestLongListsComeInPages: an API server ignores the limit of a list that its cache may answer.
func TestLongListsComeInPages(t *testing.T) {
	kube := fake.NewClientset(placementtest.Node("n", nil))
	var mu sync.Mutex
	whole := map[string]bool{}
	kube.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.ListActionImpl).ListOptions
		mu.Lock()
		defer mu.Unlock()
		whole[action.GetResource().Resource] = o.Limit == 0 || o.ResourceVersion != ""
		return false, nil, nil
	})
	readerOf(t, kube, placement.NewInventory())
	mu.Lock()
	defer mu.Unlock()
	for _, resource := range []string{"nodes", "pods", "namespaces", "resourcequotas", "resourceslices", "resourceclaims"} {
		if inOnePiece, isListed := whole[resource]; inOnePiece || !isListed {
			t.Errorf("%s: listed %v, in one piece %v", resource, isListed, inOnePiece)
		}
	}
}
