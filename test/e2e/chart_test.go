//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Where the chart is installed in these tests.
const (
	release  = "sluice"
	nodePort = 30080
)

// lifeCycle selects the specs of instances and bindings, which several replicas, another hub and
// plans of another kind could answer differently. Headers, forms of errors, ids and the catalog
// are the same code in one replica with a plan of kind resources, with which TestEmbeddedHub
// runs all specs.
const lifeCycle = "P3 || P4 || F1 || F2 || U1 || U2 || L1 || L2 || B1 || B6 || D1 || D2 || O1"

// TestChart installs the version before this one by its chart on a kind cluster, which is then its hub, and upgrades it
// while a platform orders, all as docs/operating.md says. It runs the same story and suite there; replicas are killed
// meanwhile. Uninstalled as that page says, nothing is left.
func TestChart(t *testing.T) {
	prepareHub(t)
	before, o := newOperator(t, checkoutBefore(t)), newOperator(t, checkout(t))
	if len(o.blocks) != 5 {
		t.Fatalf("docs/operating.md has %d blocks of commands for the hub on a cluster, want those for the image, installing, registering, upgrading and uninstalling", len(o.blocks))
	}
	b := before.install(t)
	for _, name := range members {
		before.shell(t, fmt.Sprintf("sluice cluster add %s --from-kubeconfig %s --region region-of-%[1]s --kubeconfig $KUBECONFIG", name, internalKubeconfig(name)))
	}
	before.shell(t, "sluice catalog apply -f test/e2e/catalog.yaml --kubeconfig $KUBECONFIG")

	t.Run("upgraded while a platform orders", func(t *testing.T) { o.upgradeUnderLoad(t, b) })
	t.Run("story", func(t *testing.T) { story(t, b) })
	t.Run("conformance while a replica is replaced", func(t *testing.T) {
		var group sync.WaitGroup
		group.Go(func() { replaceLeader(t) })
		conformance(t, b, lifeCycle)
		group.Wait()
	})
	t.Run("garbage is collected before the pod's limit of memory", wantMemoryLimit)
	t.Run("the leader killed in the middle of a burst", func(t *testing.T) { burstWithKill(t, b) })
	t.Run("nothing is left", func(t *testing.T) {
		for _, name := range members {
			nothingLeft(t, name)
		}
	})
	t.Run("uninstalled", func(t *testing.T) { o.uninstall(t, b) })
}

// prepareHub starts the kind cluster that is the hub. It begins empty: what it stored of an earlier run has finalizers
// and no controller.
func prepareHub(t *testing.T) {
	t.Helper()
	needMembers(t)
	must(t, run("test/kind/down.sh", hubCluster))
	must(t, clustersUp(hubCluster))
	admin, _ := administrator(t, hubCluster)
	t.Cleanup(func() {
		if t.Failed() {
			podLogs(t, admin)
		}
	})
}

// commitBefore is the commit of the version that is upgraded to this one: that of the last release, and until there is
// one, an older one with other definitions.
const commitBefore = "5251e86"

// versionBefore is the version of its image.
const versionBefore = "0.0.1"

// checkoutBefore returns the source tree of the version before this one. A clone without its commit has that of its
// own.
func checkoutBefore(t *testing.T) string {
	t.Helper()
	dir, commit := t.TempDir(), commitBefore
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		t.Logf("this clone has no commit %s, so this version is upgraded to itself: %s", commit, out)
		commit = "HEAD"
	}
	shell(t, root, fmt.Sprintf(`git archive %s | tar --extract --directory %s
		sed -i 's/^appVersion:.*/appVersion: %s/' %[2]s/charts/sluice/Chart.yaml
		sed -i 's/VERSION=[0-9.]*/VERSION=%[3]s/' %[2]s/docs/operating.md`, commit, dir, versionBefore), os.Environ())
	return dir
}

// operator follows docs/operating.md of a checkout of her own, with the sluice that is built there.
type operator struct {
	dir         string
	environment []string
	// blocks of commands on the page: for the image, installing, registering, upgrading, and uninstalling.
	blocks []string
}

func newOperator(t *testing.T, dir string) *operator {
	t.Helper()
	kubectl, err := output("test/kubernetes/build.sh", "kubectl")
	must(t, err)
	tools := t.TempDir()
	pinned := fmt.Sprintf("#!/bin/sh\nexec go tool -modfile=%s helm \"$@\"\n", filepath.Join(dir, "tools/go.mod"))
	must(t, os.WriteFile(filepath.Join(tools, "helm"), []byte(pinned), 0o755))
	blocks := commandsUnder(t, filepath.Join(dir, "docs/operating.md"), "### On a cluster")
	return &operator{
		dir: dir, blocks: blocks,
		environment: newcomer(t, "KUBECONFIG="+kubeconfig(hubCluster), "MEMBER_KUBECONFIG="+internalKubeconfig(members[0]),
			"PATH="+strings.Join([]string{filepath.Join(dir, "bin"), strings.TrimSpace(kubectl), tools, os.Getenv("PATH")}, ":")),
	}
}

// commands returns the page's block that has a command.
func (o *operator) commands(t *testing.T, command string) string {
	t.Helper()
	var found []string
	for _, block := range o.blocks {
		if strings.Contains(block, command) {
			found = append(found, block)
		}
	}
	if len(found) != 1 {
		t.Fatalf("docs/operating.md has %d blocks with %q for the hub on a cluster, want one", len(found), command)
	}
	return found[0]
}

func (o *operator) shell(t *testing.T, script string) {
	t.Helper()
	shell(t, o.dir, script, o.environment)
}

// build makes the image, and loads it onto the hub's node.
func (o *operator) build(t *testing.T) {
	t.Helper()
	o.shell(t, o.commands(t, "make image"))
	must(t, run("test/kind/load.sh", hubCluster, filepath.Join(o.dir, "bin/sluice-image.tar")))
}

// install follows the page until a member cluster is ready, then has the release serve these
// tests: their platforms, a port of the node, and a namespace under the restricted standard.
func (o *operator) install(t *testing.T) broker {
	t.Helper()
	o.build(t)
	o.shell(t, o.commands(t, "helm install"))
	o.shell(t, o.commands(t, "sluice cluster add"))
	o.shell(t, "sluice cluster remove mine --kubeconfig $KUBECONFIG") // it joins again under its own name

	must(t, os.WriteFile(filepath.Join(o.dir, "platforms.yaml"), []byte(platforms), 0o600))
	o.shell(t, fmt.Sprintf(`kubectl label namespace sluice pod-security.kubernetes.io/enforce=restricted
		kubectl -n sluice create secret generic sluice-platforms --from-file platforms.yaml --dry-run=client -o yaml | kubectl apply -f -
		helm upgrade sluice charts/sluice -n sluice --wait --timeout 10m --reuse-values \
			--set podAnnotations.platforms=tests,service.type=NodePort,service.nodePort=%d`, nodePort))

	config, err := clientcmd.LoadFromFile(internalKubeconfig(hubCluster))
	must(t, err)
	server, err := url.Parse(config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server)
	must(t, err)
	b := broker{fmt.Sprintf("http://%s:%d", server.Hostname(), nodePort), "first", "first-password-in-use"}
	ready(t, b.url)
	return b
}

// upgradeUnderLoad upgrades what is installed to this version, as the page says, while a platform orders: no request
// fails, and what was ordered of the version before can be used and ended.
func (o *operator) upgradeUnderLoad(t *testing.T, b broker) {
	o.build(t)
	p := b.findPlan(t, "kubernetes-resources", "small")
	body := map[string]any{"service_id": p.service, "plan_id": p.id}
	b.provision(t, "kept", p, nil)
	kept := consume(t, b.must(t, "PUT", bindingPath("kept"), nil, body, http.StatusCreated))

	upgrade := o.commands(t, "helm upgrade")
	var out []byte
	upgraded := make(chan error, 1)
	go func() {
		var err error
		out, err = shellCommand(t.Context(), o.dir, upgrade, o.environment).CombinedOutput()
		upgraded <- err
	}()
	for orders, ended := 1, false; !ended; orders++ {
		id := fmt.Sprintf("meanwhile-%d", orders)
		b.provision(t, id, p, nil)
		b.must(t, "PUT", bindingPath(id), nil, body, http.StatusCreated)
		b.must(t, "DELETE", bindingPath(id), p.query(), nil, http.StatusOK)
		b.deprovision(t, id, p)
		select {
		case err := <-upgraded:
			ended = true
			t.Logf("%s\n%s\n%d instances were ordered, bound, unbound and deleted meanwhile", upgrade, out, orders)
			must(t, err)
		default:
		}
	}
	for _, name := range members {
		o.shell(t, fmt.Sprintf("sluice cluster renew %s --from-kubeconfig %s --kubeconfig $KUBECONFIG", name, internalKubeconfig(name)))
	}
	o.shell(t, "sluice catalog apply -f test/e2e/catalog.yaml --kubeconfig $KUBECONFIG")
	useIt(t, "kept", kept)
	b.must(t, "DELETE", bindingPath("kept"), p.query(), nil, http.StatusOK)
	tokenStops(t, "kept", kept)
	b.deprovision(t, "kept", p)
}

// uninstall is refused while there is an instance, and then leaves nothing.
func (o *operator) uninstall(t *testing.T, b broker) {
	p := b.findPlan(t, "kubernetes-resources", "small")
	b.provision(t, "last", p, nil)
	const uninstall = "helm uninstall sluice -n sluice --wait --timeout 1m"
	if out, err := shellCommand(t.Context(), o.dir, uninstall, o.environment).CombinedOutput(); err == nil {
		t.Fatalf("helm uninstall went through with an instance left:\n%s", out)
	}
	b.deprovision(t, "last", p)
	o.shell(t, o.commands(t, "helm uninstall"))
}

// podLogs shows the end of what every replica said.
func podLogs(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	ctx := context.Background() // the test's own has ended
	pods, err := admin.CoreV1().Pods(release).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Logf("list replicas: %v", err)
		return
	}
	lines := int64(30)
	for _, pod := range pods.Items {
		log, err := admin.CoreV1().Pods(release).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
		t.Logf("replica %s, %s: %v\n%s", pod.Name, pod.Status.Phase, err, log)
	}
}

// leader returns the name of the pod that reconciles.
func leader(t *testing.T, admin kubernetes.Interface) string {
	t.Helper()
	var holder string
	eventually(t, time.Minute, "a leader is elected", func(ctx context.Context) string {
		lease, err := admin.CoordinationV1().Leases(release).Get(ctx, "sluice", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			return "the lease has no holder"
		}
		holder = *lease.Spec.HolderIdentity
		return ""
	})
	// controller-runtime's identity is the host name, an underscore and a UUID.
	for i := range holder {
		if holder[i] == '_' {
			return holder[:i]
		}
	}
	return holder
}

// replaceLeader deletes the leading replica as a rolling update would, and waits
// until the Deployment is whole again.
func replaceLeader(t *testing.T) {
	admin, _ := administrator(t, hubCluster)
	pod := leader(t, admin)
	if err := admin.CoreV1().Pods(release).Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete pod %s: %v", pod, err)
	}
	whole(t, admin)
}

// wantMemoryLimit checks that Go's runtime knows nine tenths of the chart's limit.
func wantMemoryLimit(t *testing.T) {
	admin, _ := administrator(t, hubCluster)
	metrics, err := admin.CoreV1().RESTClient().Get().Namespace(release).Resource("pods").Name(leader(t, admin) + ":8081").
		SubResource("proxy").Suffix("metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := admin.AppsV1().Deployments(release).Get(t.Context(), release, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := float64(d.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()) * 0.9
	_, after, found := strings.Cut(string(metrics), "\ngo_gc_gomemlimit_bytes ")
	value, _, _ := strings.Cut(after, "\n")
	if got, err := strconv.ParseFloat(value, 64); !found || err != nil || math.Abs(got-want) > 1 {
		t.Errorf("the runtime's limit is %q, want %.0f", value, want)
	}
}

func whole(t *testing.T, admin kubernetes.Interface) {
	eventually(t, 2*time.Minute, "both replicas ready", func(ctx context.Context) string {
		d, err := admin.AppsV1().Deployments(release).Get(ctx, release, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if complete(d) {
			return ""
		}
		return fmt.Sprintf("%d of %d ready", d.Status.ReadyReplicas, *d.Spec.Replicas)
	})
}

func complete(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == *d.Spec.Replicas && d.Status.UnavailableReplicas == 0
}

// burstWithKill orders instances from several clients, kills the leader without
// grace while they are under way, and checks that every one is delivered once
// and removed without trace.
func burstWithKill(t *testing.T, b broker) {
	admin, _ := administrator(t, hubCluster)
	p := b.findPlan(t, "kubernetes-resources", "small")
	ids := make([]string, 4)
	for i := range ids {
		ids[i] = fmt.Sprintf("burst-%d", i)
	}
	var group sync.WaitGroup
	for i, id := range ids {
		group.Go(func() {
			b.must(t, "PUT", "/v2/service_instances/"+id, url.Values{"accepts_incomplete": {"true"}}, map[string]any{
				"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space",
			}, http.StatusAccepted, http.StatusOK)
		})
		if i == len(ids)/2 {
			now := int64(0)
			must(t, admin.CoreV1().Pods(release).Delete(t.Context(), leader(t, admin), metav1.DeleteOptions{GracePeriodSeconds: &now}))
		}
	}
	group.Wait()
	for _, id := range ids {
		b.await(t, id, "provision "+id)
	}
	for _, id := range ids {
		if n := namespacesOf(t, id); n != 1 {
			t.Errorf("%s is on %d clusters, want 1", id, n)
		}
	}
	for _, id := range ids {
		b.deprovision(t, id, p)
	}
	whole(t, admin)
}

// namespacesOf counts the member clusters that carry an instance.
func namespacesOf(t *testing.T, id string) int {
	t.Helper()
	count := 0
	for _, name := range members {
		admin, _ := administrator(t, name)
		_, err := admin.CoreV1().Namespaces().Get(t.Context(), v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id)), metav1.GetOptions{})
		if err == nil {
			count++
		}
	}
	return count
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	must(t, err)
	return abs
}
