//go:build faults

package crash

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/liqo/liqotest"
)

// linkedStories take every path of components that are linked over two clusters.
var linkedStories = []story{
	{"components on two clusters", func(b *bed) []step {
		t := b.tour()
		return []step{
			{"provision over two clusters", t.provision, killed},
			{"update to a plan that moves a component to the other", t.update("moved", placed{"web": "near", "api": "near", "db": "far"}), killed},
			{"update to a plan without links", t.update("apart", placed{"web": "near", "api": "near", "db": "far"}), killed},
			{"update to a plan with links", t.update("moved", placed{"web": "near", "api": "near", "db": "far"}), spared},
			{"lose the cluster of a component, which comes back", t.loseFar, killed},
			{"deprovision on one cluster", t.deprovision, spared},
		}
	}},
	{"components on two clusters that go together", func(b *bed) []step {
		t := b.tour()
		return []step{
			{"provision over two clusters", t.provision, spared},
			{"deprovision with links", t.deprovision, killed},
		}
	}},
}

// TestKillLinkedComponents plays these stories on two clusters with Liqo's definitions. A stand-in
// (liqotest.Network) does what Liqo's controllers would do; test/e2e has the real ones.
func TestKillLinkedComponents(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	newLinkedBed(ctx, t, stop).tell(ctx, t, linkedStories)
}

// newLinkedBed is a bed with two clusters that can be peered.
func newLinkedBed(ctx context.Context, t *testing.T, stop context.CancelCauseFunc) *bed {
	t.Helper()
	b := startMembers(t, "near", "far")
	known := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(known))
	for kind := range liqo.Scheme.AllKnownTypes() {
		if o, err := liqo.Scheme.New(kind); err == nil {
			known.AddKnownTypeWithName(kind, o)
		}
	}
	var ends []liqotest.Cluster
	for _, name := range []string{"near", "far"} {
		m := b.members[name]
		admin, err := client.New(m.config(t), client.Options{Scheme: known})
		if err != nil {
			t.Fatal(err)
		}
		liqotest.Install(t, admin, liqotest.Definitions...)
		if err := admin.Create(ctx, liqotest.RemoteControlPlane(t)); err != nil {
			t.Fatal(err)
		}
		m.liqo = admin
		ends = append(ends, liqotest.Cluster{Admin: admin, ID: name + "-id"})
		ends[len(ends)-1].Identify(t, liqo.DefaultNamespace)
	}
	var wires liqotest.Network
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		wires.Pass(ctx, ends[0], ends[1])
		wires.Pass(ctx, ends[1], ends[0])
	}, 50*time.Millisecond)

	b.server = serve(t, stop, "--probe-every", "2s")
	b.platform = platform{"http://" + b.address}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for name, price := range map[string]string{"near": "cpu=1", "far": "cpu=0.1"} {
		err := b.operate(ctx, "cluster", "add", name, "--from-kubeconfig", b.members[name].kubeconfig, "--region", name,
			"--driver", "liqo", "--gateway-service", "NodePort", "--price", price)
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.operate(ctx, "catalog", "apply", "-f", "testdata/tours.yaml"); err != nil {
		t.Fatal(err)
	}
	return b
}

// tour is an instance of linked components.
type tour struct{ *instance }

// placed are components by name, each with its cluster.
type placed map[string]string

func (b *bed) tour() *tour {
	i := b.instance("tour")
	i.service, i.plan = "tours", "tour"
	return &tour{i}
}

func (t *tour) request(more map[string]any) map[string]any {
	body := map[string]any{"service_id": t.service, "plan_id": t.plan}
	maps.Copy(body, more)
	return body
}

func (t *tour) provision(ctx context.Context) error {
	body := t.request(map[string]any{"organization_guid": "organization", "space_guid": "space"})
	if err := t.succeed(ctx, http.MethodPut, t.path(), async, body); err != nil {
		return err
	}
	return t.runs(ctx, placed{"web": "near", "api": "far", "db": "far"})
}

func (t *tour) update(plan string, where placed) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := t.succeed(ctx, http.MethodPatch, t.path(), async, t.request(map[string]any{"plan_id": plan})); err != nil {
			return err
		}
		t.plan = plan
		return t.runs(ctx, where)
	}
}

func (t *tour) deprovision(ctx context.Context) error {
	if err := t.instance.deprovision(ctx); err != nil {
		return err
	}
	return t.peered(ctx, false)
}

// loseFar stops the API server of a cluster. What runs there runs on the other one then, and nothing is
// left when it is back.
func (t *tour) loseFar(ctx context.Context) error {
	far := t.members["far"]
	far.away.Store(true)
	far.plane.KillAPIServer()
	err := until(ctx, func(ctx context.Context) error {
		seen, err := t.inHub(ctx)
		if err != nil {
			return err
		}
		if on := seen.Status.Delivered.Decision.Clusters(); !slices.Equal(on, []string{"near"}) {
			return fmt.Errorf("the instance is on %v: %v", on, seen.Status.Conditions)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.runsThere(ctx, "near", placed{"web": "near", "api": "near", "db": "near"}); err != nil {
		return err
	}
	if err := far.plane.StartAPIServer(ctx); err != nil {
		return err
	}
	far.away.Store(false)
	err = until(ctx, func(ctx context.Context) error {
		seen, err := t.inHub(ctx)
		if err == nil && len(seen.Status.Left) > 0 {
			err = fmt.Errorf("the instance is still left on %s", seen.Status.Left[0].Cluster)
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.runs(ctx, placed{"web": "near", "api": "near", "db": "near"})
}

// linked returns the links of the plan.
func (t *tour) linked() [][2]string {
	if t.plan == "apart" {
		return nil
	}
	return [][2]string{{"web", "api"}, {"api", "web"}, {"api", "db"}, {"db", "api"}}
}

// runs checks that each component runs on its cluster and nowhere else, that linked ones on two clusters
// lead to each other, and nothing leads anywhere else.
func (t *tour) runs(ctx context.Context, where placed) error {
	clusters := slices.Compact(slices.Sorted(maps.Values(where)))
	if err := t.delivered(ctx, len(clusters)); err != nil {
		return err
	}
	across := false
	for _, link := range t.linked() {
		across = across || where[link[0]] != where[link[1]]
	}
	if err := t.peered(ctx, across); err != nil {
		return err
	}
	return t.each(func(cluster string, _ *member) error { return t.runsThere(ctx, cluster, where) })
}

func (t *tour) runsThere(ctx context.Context, cluster string, where placed) error {
	here, namespace := t.members[cluster], v1alpha1.MemberNamespace(t.name)
	deployments, err := here.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var run, want []string
	for _, d := range deployments.Items {
		run = append(run, fmt.Sprintf("%s %d/1", d.Name, d.Status.ReadyReplicas))
	}
	leads := map[string]string{} // to the address of another component
	for name, on := range where {
		if on == cluster {
			want = append(want, name+" 1/1")
		}
	}
	for _, link := range t.linked() {
		if where[link[0]] == cluster && where[link[1]] != cluster {
			if leads[link[1]], err = t.addressOf(ctx, where[link[1]], link[1]); err != nil {
				return err
			}
		}
	}
	if slices.Sort(run); !slices.Equal(run, slices.Sorted(slices.Values(want))) {
		return fmt.Errorf("%s runs %v, want %v", cluster, run, want)
	}
	list, err := here.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + v1alpha1.ManagedBy})
	if err != nil {
		return err
	}
	found := map[string]string{}
	for _, s := range list.Items {
		found[s.Labels[discoveryv1.LabelServiceName]] = s.Endpoints[0].Addresses[0]
	}
	if !maps.Equal(found, leads) {
		return fmt.Errorf("names on %s lead to %v, want %v", cluster, found, leads)
	}
	return t.onlyNeeded(ctx, here, namespace, slices.Concat(slices.Collect(maps.Keys(leads)), components(where, cluster)), leads)
}

// onlyNeeded checks that there are Services of exactly these names, policies that let out to exactly the
// linked components, and no addresses that nobody asked for.
func (t *tour) onlyNeeded(ctx context.Context, here *member, namespace string, names []string, leads map[string]string) error {
	services, err := here.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var found []string
	for _, s := range services.Items {
		found = append(found, s.Name)
		if _, remote := leads[s.Name]; remote != (len(s.Spec.Selector) == 0) {
			return fmt.Errorf("Service %s selects %v, and leads to another cluster: %t", s.Name, s.Spec.Selector, remote)
		}
	}
	if !slices.Equal(slices.Sorted(slices.Values(found)), slices.Sorted(slices.Values(names))) {
		return fmt.Errorf("there are the Services %v, want %v", found, names)
	}
	policies, err := here.NetworkingV1().NetworkPolicies(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range policies.Items {
		if name, out := strings.CutSuffix(p.Name, ".link"); out && leads[name] == "" {
			return fmt.Errorf("left behind: NetworkPolicy %s", p.Name)
		}
	}
	return nil
}

// components returns those on a cluster.
func components(where placed, cluster string) (names []string) {
	for name, on := range where {
		if on == cluster {
			names = append(names, name)
		}
	}
	return names
}

// addressOf returns the address at which the other cluster reaches a component: there is exactly one.
func (t *tour) addressOf(ctx context.Context, cluster, component string) (string, error) {
	var list ipamv1alpha1.IPList
	err := t.members[cluster].liqo.List(ctx, &list, client.InNamespace(v1alpha1.MemberNamespace(t.name)), client.MatchingLabels{v1alpha1.LabelComponent: component})
	if err != nil {
		return "", err
	}
	if len(list.Items) != 1 || list.Items[0].Status.IP == "" {
		return "", fmt.Errorf("%s on %s has the addresses %v, want one", component, cluster, list.Items)
	}
	return strings.Replace(string(list.Items[0].Status.IP), "10.70.", "10.71.", 1), nil
}

// peered checks whether the two clusters are peered; what ends takes its time.
func (t *tour) peered(ctx context.Context, want bool) error {
	return t.withHub(ctx, func(hub client.Client) error {
		var list v1alpha1.PeeringList
		if err := hub.List(ctx, &list, client.InNamespace(namespace)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if want != (len(list.Items) == 1) {
			return fmt.Errorf("there are %d peerings, want one: %t", len(list.Items), want)
		}
		return nil
	})
}
