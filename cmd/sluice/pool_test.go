package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/overview"
)

// TestSelectors: a selector selects the labels that it selects for kubectl.
func TestSelectors(t *testing.T) {
	for text, want := range map[string]string{
		"pool=eu":                       "pool=eu",
		"pool==eu,tier!=edge":           "pool=eu,tier notin (edge)",
		"region in (a,b)":               "region in (a,b)",
		"region notin (a, b), !old, ok": "ok,!old,region notin (a,b)",
		"pool=a,pool=b":                 "pool=a,pool in (b)",
		"":                              "it selects by no label",
		"pool=eu,":                      "found ''",
		"region in a":                   "unable to parse",
		"cores>8":                       "cores>8: labels are not compared by size",
	} {
		parsed, err := parseSelector(text)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && metav1.FormatLabelSelector(&parsed) != want {
			t.Errorf("%q is %s, %v; want %s", text, metav1.FormatLabelSelector(&parsed), err, want)
		}
	}
}

// poolFixture is a hub with a front, three clusters of which a pool may have two, and a broker.
type poolFixture struct {
	*testing.T
	c         client.Client
	namespace string
	operator  func(args ...string) (string, error)
	must      func(args ...string) string
}

func newPoolFixture(t *testing.T) *poolFixture {
	h, c, operator, must := operatedHub(t)
	f := &poolFixture{t, c, h.Namespace, operator, must}
	for name, labels := range map[string]map[string]string{"front": {"pool": "eu"}, "small-1": {"pool": "eu"}, "small-2": {"pool": "eu", "disk": "ssd"}, "other": nil} {
		cluster := readyCluster(t, c, h.Namespace, name, 16)
		cluster.Labels, cluster.Spec.Driver, cluster.Spec.Provider = labels, v1alpha1.DriverLiqo, "provider-of-"+name
		cluster.Spec.Liqo = &v1alpha1.LiqoCluster{Hub: name == "front"}
		f.update(cluster)
	}
	broker := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "far"}, Spec: v1alpha1.MemberClusterSpec{
		Driver: v1alpha1.DriverOSB, Access: v1alpha1.ClusterAccess{SealedCredentials: []byte("sealed")}, Broker: &v1alpha1.UpstreamBroker{URL: "https://far.example"},
	}}
	if err := c.Create(t.Context(), broker); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *poolFixture) update(o client.Object) {
	f.Helper()
	if err := f.c.Update(f.Context(), o); err != nil {
		f.Fatal(err)
	}
}

func (f *poolFixture) read(name string) *v1alpha1.MemberCluster {
	f.Helper()
	cluster := &v1alpha1.MemberCluster{}
	if err := f.c.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: name}, cluster); err != nil {
		f.Fatal(err)
	}
	return cluster
}

// add adds the pool eu-pool, which has the labels pool=eu.
func (f *poolFixture) add(more ...string) {
	f.Helper()
	f.must(append([]string{"pool", "add", "eu-pool", "--front", "front", "--members", "pool=eu", "--wait", "0"}, more...)...)
}

// ready makes the pool as ready as the controller does, with 20 cores of which others use 2.
func (f *poolFixture) ready() {
	f.Helper()
	pool := f.read("eu-pool")
	pool.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20")}
	pool.Status.ForeignUse = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	for _, condition := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionAccessVerified, v1alpha1.ConditionCapacityKnown, v1alpha1.ConditionReady} {
		v1alpha1.SetCondition(&pool.Status.Conditions, pool.Generation, condition, metav1.ConditionTrue, "Fine", "fine")
	}
	if err := f.c.Status().Update(f.Context(), pool); err != nil {
		f.Fatal(err)
	}
}

// orders places an instance with two cores on the pool, and the pool's own order for it on a member.
func (f *poolFixture) orders(name, member string) (outer, inner *v1alpha1.ServiceInstance) {
	f.Helper()
	outer = deliveredInstance(f.T, f.c, f.namespace, name, "eu-pool")
	inner = &v1alpha1.ServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: v1alpha1.PoolInstanceName("eu-pool", name)},
		Spec: v1alpha1.ServiceInstanceSpec{
			Platform: v1alpha1.PlatformSelf, InstanceID: v1alpha1.PoolInstanceID("eu-pool", name), ServiceID: "service-1", Desired: outer.Spec.Desired,
			Pool: &v1alpha1.PoolOrder{Pool: "eu-pool", Instance: name, InstanceUID: outer.UID, Platform: "cf"},
		},
	}
	if err := f.c.Create(f.Context(), inner); err != nil {
		f.Fatal(err)
	}
	inner.Status = *outer.Status.DeepCopy()
	inner.Status.Decision.Placements[0].Cluster, inner.Status.Delivered.Decision.Placements[0].Cluster = member, member
	outer.Status.Decision.Placements[0].Pool = &v1alpha1.PlacementPool{Instance: inner.Name}
	for _, i := range []*v1alpha1.ServiceInstance{outer, inner} {
		if err := f.c.Status().Update(f.Context(), i); err != nil {
			f.Fatal(err)
		}
	}
	return outer, inner
}

func (f *poolFixture) refuses(says string, args ...string) {
	f.Helper()
	if out, err := f.operator(args...); err == nil || !strings.Contains(err.Error(), says) {
		f.Errorf("sluice %s: %v, want %q\n%s", strings.Join(args, " "), err, says, out)
	}
}

func (f *poolFixture) shows(out string, wanted ...string) {
	f.Helper()
	for _, want := range wanted {
		if !strings.Contains(out, want) {
			f.Errorf("there is no %q in\n%s", want, out)
		}
	}
}

// TestPoolAdd: a pool is registered without an access, only the given flags change it, and what is wrong is said with a
// remedy.
func TestPoolAdd(t *testing.T) {
	f := newPoolFixture(t)
	for says, args := range map[string]string{
		"pool x: --front: is missing: name a hub": "x --members pool=eu",
		"pool x: --members: is missing":           "x --front front",
		"--front nowhere: it is not in the inventory: `sluice cluster add --driver liqo --hub` adds it": "x --front nowhere --members pool=eu",
		"--front other: it is no hub: `sluice cluster add --driver liqo --hub` makes a cluster one":     "x --front other --members pool=eu",
		"--front far: it is no hub":                         "x --front far --members pool=eu",
		`--members "pool=(": `:                              "x --front front --members pool=(",
		"pool other: a cluster has that name: take another": "other --front front --members pool=eu",
		"pool far: a broker has that name: take another":    "far --front front --members pool=eu",
		`--price cpu=cheap`:                                 "x --front front --members pool=eu --price cpu=cheap",
	} {
		f.refuses(says, append([]string{"pool", "add", "--wait", "0"}, strings.Fields(args)...)...)
	}
	if err := f.c.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: "x"}, &v1alpha1.MemberCluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("after what was refused, the pool is there: %v", err)
	}

	f.add("--provider", "market", "--region", "eu", "--label", "class=small", "--price", "cpu=0.04", "--sell", "share=80", "--taint", "a=b:NoSchedule", "--oversubscribe", "cpu=1.5")
	added := f.read("eu-pool")
	want := v1alpha1.MemberClusterSpec{
		Driver: v1alpha1.DriverPool, Pool: &v1alpha1.ClusterPool{Front: "front", Members: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "eu"}}},
		Provider: "market", Region: "eu", Tier: v1alpha1.TierCloud, Sell: &v1alpha1.Sale{Share: 80}, Taints: []corev1.Taint{{Key: "a", Value: "b", Effect: corev1.TaintEffectNoSchedule}},
		Prices:           &v1alpha1.PriceList{Currency: "EUR", PerHour: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("0.04")}},
		Oversubscription: map[corev1.ResourceName]resource.Quantity{"cpu": resource.MustParse("1.5")},
	}
	if !equality.Semantic.DeepEqual(added.Spec, want) || added.Labels["class"] != "small" {
		t.Fatalf("added is %+v, want %+v", added.Spec, want)
	}
	f.must("pool", "add", "eu-pool", "--members", "pool=eu,disk!=ssd", "--wait", "0")
	want.Pool.Members.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "disk", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"ssd"}}}
	if changed := f.read("eu-pool"); !equality.Semantic.DeepEqual(changed.Spec, want) || changed.Labels["class"] != "small" {
		t.Errorf("changed to %+v, want %+v", changed.Spec, want)
	}
	f.refuses("--front other: it is no hub", "pool", "add", "eu-pool", "--front", "other", "--wait", "0")

	f.refuses("pool eu-pool: registered, but not ready after 1s: no controller has looked at it", "pool", "add", "eu-pool", "--wait", "1s")
	f.must("cluster", "cordon", "small-1", "--wait", "0")
	for members, want := range map[string]string{"pool=eu": "1 of 2 members take orders\n", "pool=eu,disk=ssd": "1 member\n", "pool=eu,disk!=ssd": "0 of 1 member take orders\n"} {
		f.must("pool", "add", "eu-pool", "--members", members, "--wait", "0")
		f.ready()
		if out := f.must("pool", "add", "eu-pool"); out != "pool eu-pool: ready, "+want {
			t.Errorf("with %s: %q, want %q", members, out, want)
		}
	}
}

// TestPoolIsNoCluster: commands for clusters and brokers name those for pools, lists are of one kind, and cordon and drain
// are for all kinds.
func TestPoolIsNoCluster(t *testing.T) {
	f := newPoolFixture(t)
	f.add()
	const hint = "it is a pool: use `sluice pool`"
	f.refuses("cluster eu-pool: "+hint, "cluster", "add", "eu-pool", "--from-kubeconfig", "nowhere")
	f.refuses("cluster eu-pool: "+hint, "cluster", "renew", "eu-pool", "--from-kubeconfig", "nowhere")
	f.refuses("cluster far: it is a broker: use `sluice broker`", "cluster", "renew", "far", "--from-kubeconfig", "nowhere")
	f.refuses("broker eu-pool: a pool has that name", "broker", "add", "eu-pool", "--url", "https://far.example")
	f.refuses("broker eu-pool: "+hint, "broker", "describe", "eu-pool")
	f.refuses("broker eu-pool: "+hint, "broker", "remove", "eu-pool")
	f.refuses("pool other: it is a cluster: use `sluice cluster`", "pool", "describe", "other")
	f.refuses("pool far: it is a broker: use `sluice broker`", "pool", "remove", "far")
	f.refuses("pool nowhere: there is none of this name; `sluice pool list` shows them all", "pool", "remove", "nowhere")
	for kind, want := range map[string]string{overview.KindCluster: "front other small-1 small-2\n", overview.KindBroker: "far\n", overview.KindPool: "eu-pool\n"} {
		if out := f.must(kind, "list", "-o", "jsonpath={[*].metadata.name}"); out != want {
			t.Errorf("the list of each %s is %q, want %q", kind, out, want)
		}
		for line := range strings.Lines(f.must(kind, "list", "--no-headers")) {
			if name := strings.Fields(line)[0]; !strings.Contains(want, name) {
				t.Errorf("the list of each %s has %s", kind, name)
			}
		}
	}

	f.must("cluster", "cordon", "eu-pool", "--wait", "0")
	f.shows(f.must("pool", "list"), "cordoned, unknown")
	f.must("cluster", "drain", "eu-pool", "--wait", "5s")
	f.shows(f.must("pool", "list"), "draining, unknown")
	f.must("cluster", "uncordon", "eu-pool", "--wait", "0")
	if pool := f.read("eu-pool"); pool.Spec.Unschedulable || len(pool.Spec.Taints) > 0 {
		t.Errorf("the pool is %+v", pool.Spec)
	}
}

// TestPoolAndItsInstances: a pool is listed and described with its members, and with its own order for each instance, and
// neither it nor its front is removed while it is used.
func TestPoolAndItsInstances(t *testing.T) {
	f := newPoolFixture(t)
	f.add("--provider", "market", "--region", "eu")
	small := f.read("small-2")
	small.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintPool, Value: "eu-pool", Effect: corev1.TaintEffectNoSchedule}}
	small.Spec.Sell = &v1alpha1.Sale{AtMost: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}
	f.update(small)
	f.must("cluster", "cordon", "small-1", "--wait", "0")
	deliveredInstance(t, f.c, f.namespace, "si-direct", "small-2")
	outer, inner := f.orders("si-1", "small-2")
	deliveredInstance(t, f.c, f.namespace, "si-2", "eu-pool") // the pool has not ordered for it yet
	f.ready()

	list := f.must("pool", "list")
	row := strings.Fields(lineWith(list, "eu-pool"))
	if got := strings.Join(row[:len(row)-1], " "); got != "eu-pool yes - eu front 1 of 2 20 4 14 0 0 0 2" {
		t.Errorf("the row is %q in\n%s", got, list)
	}
	f.shows(f.must("pool", "list", "-o", "wide"), "market", "CPU OTHERS")
	out := f.must("pool", "describe", "eu-pool")
	f.shows(out, "Front:           front: unknown\n", "Selects:         pool=eu\n", "Takes orders:    yes\n", "20 cpu, of which 4 sold, 2 used by others, 14 free\n", "Members:         2\n",
		"small-1 of provider-of-small-1 in small-1: cordoned, unknown\n", "  takes no orders of the pool\n",
		"small-2 of provider-of-small-2 in small-2: unknown, taint sluice.dev/pool=eu-pool:NoSchedule\n", "  has 16 cpu\n", "  sells 8 cpu, of which others use 2 cpu\n",
		"Instances:       2\n", "si-1 (cf/si-1): the pool's order "+inner.Name+" is on small-2\n", "si-2 (cf/si-2): the pool has no order for it\n")
	if strings.Contains(out, "provider-of-front") || strings.Contains(out, "provider-of-other") {
		t.Errorf("it has members that are none:\n%s", out)
	}
	if out := f.must("pool", "describe", "eu-pool", "-o", "jsonpath={.spec.pool.front}"); out != "front\n" {
		t.Errorf("as a document, it has the front %q", out)
	}
	f.shows(f.must("instance", "describe", "si-1"), "from pool eu-pool, whose own order is the instance "+inner.Name+"\n")
	f.shows(f.must("instance", "describe", inner.Name), "instance si-1 of cf, which is ordered from pool eu-pool\n", "Namespace: ")

	f.shows(f.must("cluster", "drain", "eu-pool", "--dry-run"), "cluster eu-pool: 0 instances would move, 2 would stay\n")
	f.refuses("pool eu-pool: 2 instances there: si-1 (cf), si-2 (cf). Deprovision them first, or move them", "pool", "remove", "eu-pool")
	f.refuses("cluster front: it is the front of pool eu-pool: give the pool another one with `sluice pool add eu-pool --front HUB`", "cluster", "remove", "front")
	_, err := f.operator("uninstall", "--yes")
	if err == nil || !strings.Contains(err.Error(), "si-1") || strings.Contains(err.Error(), inner.Name) {
		t.Errorf("uninstalled: %v, want only the consumers' instances to be in the way", err)
	}
	for _, name := range []string{"si-1", "si-2", inner.Name} {
		gone := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: outer.Namespace, Name: name}}
		if err := f.c.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
	}
	if out := f.must("pool", "remove", "eu-pool"); out != "pool eu-pool: has left the inventory\n" {
		t.Errorf("removed: %s", out)
	}
	f.must("cluster", "remove", "front")
}

// TestPoolDescribesAFrontThatIsNone: what is wrong with the front is said where the front is shown.
func TestPoolDescribesAFrontThatIsNone(t *testing.T) {
	pool := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-pool"}, Spec: v1alpha1.MemberClusterSpec{Driver: v1alpha1.DriverPool, Pool: &v1alpha1.ClusterPool{Front: "eu"}}}
	eu := soldCluster("eu")
	eu.UID = "uid"
	for want, clusters := range map[string][]v1alpha1.MemberCluster{"eu: it is not in the inventory": nil, "eu: it is no hub": {eu}} {
		var out strings.Builder
		if err := describePool(&out, pool, clusters, nil, nil); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("described with %v as\n%s, want %q", err, out.String(), want)
		}
	}
}
