//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/liqo"
	"github.com/sluice-dev/sluice/internal/liqo/liqotest"
	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/faults"
)

// callees are the components that those of the tour call, each by its name.
var callees = map[string][]string{"web": {"api"}, "api": {"web", "db"}, "db": {"api"}}

// tour is an instance whose components run on three clusters. After each write to one of these, while no other is
// made, it looks whether everybody is let in who follows a name.
type tour struct {
	*instance
	clusters map[string]liqotest.Cluster

	mu     sync.Mutex
	begun  bool
	writes int
	wrong  []string
}

// TestComponentsMoveWithoutAGap moves a component to other clusters while Sluice is killed after each of
// its writes. After every write, whoever follows the name of a component is let in where it leads, and finds it there.
func TestComponentsMoveWithoutAGap(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	names := []string{"one", "two", "three"}
	b := startMembers(t, names...)
	b.server = serve(ctx, t, stop, b.members["one"].kubeconfig)
	b.platform = platform{"http://" + b.address}
	tr := &tour{instance: &instance{bed: b, id: "tour", name: v1alpha1.InstanceName(platformName, "tour"), service: "tours"}, clusters: map[string]liqotest.Cluster{}}
	for _, name := range names {
		config := b.members[name].config(t)
		config.QPS = -1
		tr.clusters[name] = withLiqo(ctx, t, config, name+"-id")
		proxy := faults.Start(t, config)
		proxy.Break(&faults.Rule{Fault: tr.look, Of: func(r *http.Request, _ []byte) bool {
			return r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/namespaces/"+v1alpha1.MemberNamespace(tr.name)+"/")
		}})
		kubeconfig, err := proxy.Through(tr.administrator(ctx, t, name))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.operate(ctx, "cluster", "add", name, "--from-kubeconfig", file, "--driver", "liqo", "--gateway-service", "NodePort", "--region", name); err != nil {
			t.Fatal(err)
		}
	}
	var wires liqotest.Network // one, so that no two addresses are the same
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		for _, here := range tr.clusters {
			for _, there := range tr.clusters {
				if here != there {
					wires.Pass(ctx, here, there)
				}
			}
		}
	}, 200*time.Millisecond)
	if err := b.operate(ctx, "catalog", "apply", "-f", "testdata/tour.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := until(ctx, func(ctx context.Context) error { return b.sells(ctx, "tours", true) }); err != nil {
		t.Fatal(err)
	}
	for _, s := range []step{
		{"provision", tr.provision, spared},
		{"move to the cluster of a callee, and leave the former one", tr.move("beside-the-db", "one", "three"), killed},
		{"move to the cluster of the caller", tr.move("beside-the-web", "one", "three"), spared},
		{"deprovision", tr.deprovision, spared},
	} {
		began, before := time.Now(), len(b.deaths)
		if err := b.play(ctx, s); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		t.Logf("%-60s killed %2d times, %4.1f s", s.name, len(b.deaths)-before, time.Since(began).Seconds())
		for _, wrong := range tr.found() {
			t.Errorf("%s: %s", s.name, wrong)
		}
	}
	if tr.writes < 50 {
		t.Errorf("only %d writes were seen", tr.writes)
	}
}

// administrator returns a kubeconfig of an administrator with a token, which a proxy passes on.
func (tr *tour) administrator(ctx context.Context, t *testing.T, name string) []byte {
	t.Helper()
	token, err := controlplane.AdministratorToken(ctx, tr.members[name], "admin")
	if err != nil {
		t.Fatal(err)
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Clusters:       map[string]*clientcmdapi.Cluster{name: {}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (tr *tour) provision(ctx context.Context) error {
	tr.plan = "apart"
	body := map[string]any{"service_id": tr.service, "plan_id": tr.plan, "organization_guid": "organization", "space_guid": "space"}
	if err := tr.succeed(ctx, http.MethodPut, tr.path(), async, body); err != nil {
		return err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.begun = true
	return tr.follow(ctx)
}

// move updates the instance to another plan, after which it is on some clusters.
func (tr *tour) move(plan string, clusters ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := tr.succeed(ctx, http.MethodPatch, tr.path(), async, map[string]any{"service_id": tr.service, "plan_id": plan}); err != nil {
			return err
		}
		tr.plan = plan
		return tr.delivered(ctx, len(clusters))
	}
}

func (tr *tour) deprovision(ctx context.Context) error {
	tr.mu.Lock()
	tr.begun = false
	tr.mu.Unlock()
	return tr.instance.deprovision(ctx)
}

// look passes a write on, and looks what it has made of the clusters.
func (tr *tour) look(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	pass.ServeHTTP(w, r)
	if !tr.begun {
		return
	}
	tr.writes++
	if err := tr.follow(context.WithoutCancel(r.Context())); err != nil {
		tr.wrong = append(tr.wrong, fmt.Sprintf("after %s %s: %v", r.Method, r.URL.Path, err))
	}
}

// found returns what was wrong, and forgets it.
func (tr *tour) found() []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	wrong := tr.wrong
	tr.wrong = nil
	return slices.Compact(wrong)
}

// place is a component on a cluster.
type place struct{ component, cluster string }

// follow follows all names, beginning with what web calls, to wherever they lead. The error names the first that
// leads nowhere, or where the caller is not let out or in.
func (tr *tour) follow(ctx context.Context) error {
	var seen map[string]*objects
	seen, err := tr.see(ctx)
	if err != nil {
		return err
	}
	reached := []place{{"web", "one"}}
	for i := 0; i < len(reached); i++ {
		from := reached[i]
		for _, callee := range callees[from.component] {
			targets, err := tr.lead(seen, from, callee)
			if err == nil && len(targets) == 0 {
				err = errors.New("it leads nowhere")
			}
			if err != nil {
				return fmt.Errorf("%s on %s calls %s: %w", from.component, from.cluster, callee, err)
			}
			for _, target := range targets {
				if !slices.Contains(reached, target) {
					reached = append(reached, target)
				}
			}
		}
	}
	return nil
}

// objects of the instance on a cluster.
type objects struct {
	deployments    appsv1.DeploymentList
	services       corev1.ServiceList
	slices         discoveryv1.EndpointSliceList
	policies       networkingv1.NetworkPolicyList
	addresses      ipamv1alpha1.IPList
	configurations networkingv1beta1.ConfigurationList
}

func (tr *tour) see(ctx context.Context) (map[string]*objects, error) {
	seen := map[string]*objects{}
	var failures []error
	for name, cluster := range tr.clusters {
		o := &objects{}
		for _, list := range []client.ObjectList{&o.deployments, &o.services, &o.slices, &o.policies, &o.addresses} {
			failures = append(failures, cluster.Admin.List(ctx, list, client.InNamespace(v1alpha1.MemberNamespace(tr.name))))
		}
		failures = append(failures, cluster.Admin.List(ctx, &o.configurations))
		seen[name] = o
	}
	return seen, errors.Join(failures...)
}

// lead returns where a name leads a caller.
func (tr *tour) lead(seen map[string]*objects, from place, callee string) (targets []place, err error) {
	here := seen[from.cluster]
	if here.service(callee) == nil {
		return nil, errors.New("there is no Service")
	}
	if len(here.service(callee).Spec.Selector) > 0 && here.runs(callee) {
		targets = append(targets, place{callee, from.cluster})
	}
	for i := range here.slices.Items {
		s := &here.slices.Items[i]
		if s.Labels[discoveryv1.LabelServiceName] != callee || s.Labels[discoveryv1.LabelManagedBy] != v1alpha1.ManagedBy {
			continue
		}
		address := s.Endpoints[0].Addresses[0]
		to, known := tr.at(seen, address, callee)
		switch {
		case !known:
			return nil, fmt.Errorf("nothing is at %s", address)
		case !seen[to].runs(callee):
			return nil, fmt.Errorf("it does not run on %s", to)
		case !here.letsOut(from.component, address+"/32"):
			return nil, fmt.Errorf("it is not let out to %s on %s", address, to)
		}
		if closed := seen[to].closed(callee, tr.clusters[from.cluster].ID); closed != "" {
			return nil, fmt.Errorf("%s on %s does not let in %s", callee, to, closed)
		}
		targets = append(targets, place{callee, to})
	}
	return targets, nil
}

// at returns the cluster whose Service of a component has an address, which is seen elsewhere in another range.
func (tr *tour) at(seen map[string]*objects, address, component string) (cluster string, known bool) {
	given := strings.Replace(address, "10.71.", "10.70.", 1)
	for name, o := range seen {
		for i := range o.addresses.Items {
			ip := &o.addresses.Items[i]
			if service := o.service(component); string(ip.Status.IP) == given && service != nil && string(ip.Spec.IP) == service.Spec.ClusterIP {
				return name, true
			}
		}
	}
	return "", false
}

func (o *objects) service(name string) *corev1.Service {
	for i := range o.services.Items {
		if o.services.Items[i].Name == name {
			return &o.services.Items[i]
		}
	}
	return nil
}

// runs reports whether a component has a pod that is ready, and that stays.
func (o *objects) runs(component string) bool {
	return slices.ContainsFunc(o.deployments.Items, func(d appsv1.Deployment) bool {
		return d.Name == component && d.DeletionTimestamp.IsZero() && d.Status.ReadyReplicas > 0
	})
}

func (o *objects) policiesOf(component string, visit func(*networkingv1.NetworkPolicySpec)) {
	for i := range o.policies.Items {
		spec := &o.policies.Items[i].Spec
		selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
		if err == nil && selector.Matches(labels.Set{v1alpha1.LabelComponent: component}) {
			visit(spec)
		}
	}
}

func (o *objects) letsOut(component, cidr string) (does bool) {
	o.policiesOf(component, func(spec *networkingv1.NetworkPolicySpec) {
		for _, rule := range spec.Egress {
			does = does || slices.ContainsFunc(rule.To, func(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock != nil && p.IPBlock.CIDR == cidr })
		}
	})
	return does
}

// closed returns a range of another cluster that a component does not let in; "" if it lets in all.
func (o *objects) closed(component, other string) string {
	var open []string
	o.policiesOf(component, func(spec *networkingv1.NetworkPolicySpec) {
		for _, rule := range spec.Ingress {
			for _, from := range rule.From {
				if from.IPBlock != nil {
					open = append(open, from.IPBlock.CIDR)
				}
			}
		}
	})
	for i := range o.configurations.Items {
		c := &o.configurations.Items[i]
		if c.Namespace != liqo.TenantNamespace(other) || c.Status.Remote == nil {
			continue
		}
		for _, cidr := range slices.Concat(c.Status.Remote.CIDR.Pod, c.Status.Remote.CIDR.External) {
			if !slices.Contains(open, string(cidr)) {
				return string(cidr)
			}
		}
		return ""
	}
	return other
}
