//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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

// TestChart installs Sluice by its chart on a kind cluster, which is then its
// hub, and runs the same story and suite there; replicas are killed meanwhile.
func TestChart(t *testing.T) {
	b := install(t)
	hub := []string{"--kubeconfig", kubeconfig(hubCluster), "--namespace", release}
	for _, name := range members {
		operate(t, append([]string{"cluster", "add", name, "--from-kubeconfig", internalKubeconfig(name), "--region", "region-of-" + name}, hub...)...)
	}
	operate(t, append([]string{"catalog", "apply", "-f", filepath.Join(root, "docs/examples/offering.yaml")}, hub...)...)
	operate(t, append([]string{"catalog", "apply", "-f", "catalog.yaml"}, hub...)...)

	t.Run("story", func(t *testing.T) { story(t, b) })
	t.Run("conformance while a replica is replaced", func(t *testing.T) {
		var group sync.WaitGroup
		group.Go(func() { replaceLeader(t) })
		conformance(t, b)
		group.Wait()
	})
	t.Run("the leader killed in the middle of a burst", func(t *testing.T) { burstWithKill(t, b) })
	t.Run("nothing is left", func(t *testing.T) {
		for _, name := range members {
			nothingLeft(t, name)
		}
	})
}

// install builds the image, loads it and installs the chart with helm.
func install(t *testing.T) broker {
	t.Helper()
	dir := t.TempDir()
	archive := filepath.Join(dir, "sluice.tar")
	must(t, run("test/kind/image.sh", "sluice-dev/sluice:e2e", filepath.Join(mustAbs(t, root), "bin/sluice"), archive))
	must(t, run("test/kind/load.sh", hubCluster, archive))

	keyset, file := filepath.Join(dir, "keyset.json"), filepath.Join(dir, "platforms.yaml")
	operate(t, "keyset", "new", keyset)
	must(t, os.WriteFile(file, []byte(platforms), 0o600))

	admin, _ := administrator(t, hubCluster)
	createNamespace(t, admin, keyset, file)
	t.Cleanup(func() {
		if t.Failed() {
			podLogs(t, admin)
		}
	})
	must(t, helm("install", release, filepath.Join(root, "charts/sluice"), "--namespace", release, "--wait", "--timeout", "3m",
		"--set", "image.tag=e2e", "--set", "memberClusterSecrets=true",
		"--set", "service.type=NodePort", "--set", fmt.Sprintf("service.nodePort=%d", nodePort)))

	config, err := clientcmd.LoadFromFile(internalKubeconfig(hubCluster))
	must(t, err)
	server, err := url.Parse(config.Clusters[config.Contexts[config.CurrentContext].Cluster].Server)
	must(t, err)
	b := broker{fmt.Sprintf("http://%s:%d", server.Hostname(), nodePort), "first", "first-password-in-use"}
	ready(t, b.url)
	return b
}

// createNamespace makes the release's namespace, under the restricted pod security
// standard, with the two Secrets that the chart needs.
func createNamespace(t *testing.T, admin kubernetes.Interface, keyset, platforms string) {
	t.Helper()
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: release, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	must(t, err)
	for secret, path := range map[string]string{"sluice-keyset": keyset, "sluice-platforms": platforms} {
		data, err := os.ReadFile(path)
		must(t, err)
		_, err = admin.CoreV1().Secrets(release).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: secret}, Data: map[string][]byte{filepath.Base(path): data},
		}, metav1.CreateOptions{})
		must(t, err)
	}
}

// helm runs the pinned helm against the hub cluster.
func helm(args ...string) error {
	cmd := exec.Command("go", append([]string{"tool", "-modfile=" + filepath.Join(root, "tools/go.mod"), "helm", "--kubeconfig", kubeconfig(hubCluster)}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
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
