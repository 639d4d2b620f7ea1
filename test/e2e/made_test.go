//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/capi"
)

// loadBalancer is the image that the Docker provider asks for by this name.
const loadBalancer = "kindest/haproxy:v20230606-42a2262b"

// TestMadeCluster orders a whole cluster, which Cluster API makes with kubeadm on real
// nodes, uses it, has it grow, and gives it back; and prints how long each takes. What Sluice
// adds to the same done by hand, test/bench measures, without nodes.
func TestMadeCluster(t *testing.T) {
	image, err := output("test/kind/node-image.sh")
	must(t, err)
	must(t, loadEcho())
	must(t, run("test/kind/haproxy.sh", loadBalancer))
	bed := capi.Start(t, capi.Options{Docker: true})
	must(t, bed.Apply(t.Context(), capi.DockerClass))
	s := serve(t)
	offering, err := os.ReadFile(filepath.Join(root, "docs/examples/clusters.yaml"))
	must(t, err)
	file := filepath.Join(t.TempDir(), "made.yaml")
	must(t, os.WriteFile(file, bytes.ReplaceAll(offering, []byte("kindest/node:v1.34.4"), []byte(strings.TrimSpace(image))), 0o600))
	kubeconfig := filepath.Join(t.TempDir(), "management.kubeconfig")
	must(t, os.WriteFile(kubeconfig, bed.Kubeconfig(), 0o600))
	s.sluice("cluster", "add", "makers", "--from-kubeconfig", kubeconfig, "--driver", "capi", "--capacity", "sluice.dev/clusters=2,cpu=8,memory=16Gi,pods=500")
	s.sluice("catalog", "apply", "-f", file)
	s.sluice("policy", "apply", "-f", filepath.Join(root, "docs/examples/elastic.yaml")) // of which nothing here is in need
	p := s.broker.findPlan(t, "kubernetes", "small")

	const id = "made"
	name := v1alpha1.InstanceClusterName(v1alpha1.InstanceName("first", id))
	t.Cleanup(func() { removeNodes(t, name) })
	took := map[string]time.Duration{}
	timed := func(what string, do func()) {
		began := time.Now()
		do()
		took[what] = time.Since(began)
		t.Logf("%-32s %5.1f s", what, took[what].Seconds())
	}
	timed("provision", func() { s.broker.provision(t, id, p, nil) })
	var c consumer
	timed("bind", func() {
		s.broker.must(t, "PUT", bindingPath(id), nil, map[string]any{"service_id": p.service, "plan_id": p.id}, http.StatusCreated)
		c = consume(t, s.broker.must(t, "GET", bindingPath(id), nil, nil, http.StatusOK))
	})
	wantNodes(t, c, 2)
	timed("run a pod", func() { runPod(t, c, name) })
	timed("update to two workers", func() {
		s.broker.must(t, "PATCH", "/v2/service_instances/"+id, p.query(), map[string]any{
			"service_id": p.service, "parameters": map[string]any{"workers": map[string]any{"pool": 2}},
		}, http.StatusAccepted)
		s.broker.await(t, id, "updated")
	})
	wantNodes(t, c, 3)
	timed("deprovision, with a binding left", func() { s.broker.deprovision(t, id, p) })
	if left := nodeContainers(t, name); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// wantNodes checks that so many nodes are ready.
func wantNodes(t *testing.T, c consumer, want int) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("%d nodes are ready", want), func(ctx context.Context) string {
		nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		if ready != want || len(nodes.Items) != want {
			return fmt.Sprintf("%d of %d nodes are ready", ready, len(nodes.Items))
		}
		return ""
	})
}

// runPod runs the echo workload in the cluster and waits until it is ready.
func runPod(t *testing.T, c consumer, cluster string) {
	t.Helper()
	for _, node := range nodeContainers(t, cluster) {
		if strings.HasSuffix(node, "-lb") {
			continue
		}
		archive, err := output("test/kind/echo.sh")
		must(t, err)
		file, _, _ := strings.Cut(strings.TrimSpace(archive), "\n")
		load := exec.Command("bash", "-c", "docker exec -i "+node+" ctr --namespace k8s.io images import - <"+file)
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("load the workload into %s: %v\n%s", node, err, out)
		}
	}
	echo := pod("echo", "50m")
	_, err := c.CoreV1().Pods(c.namespace).Create(t.Context(), echo, metav1.CreateOptions{})
	must(t, err)
	eventually(t, time.Minute, "the pod is ready", func(ctx context.Context) string {
		seen, err := c.CoreV1().Pods(c.namespace).Get(ctx, echo.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, condition := range seen.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return fmt.Sprintf("it is %s: %v", seen.Status.Phase, seen.Status.ContainerStatuses)
	})
}

// nodeContainers are the containers of a cluster that was made.
func nodeContainers(t *testing.T, cluster string) []string {
	t.Helper()
	out, err := exec.Command("docker", "ps", "--all", "--format", "{{.Names}}", "--filter", "label=io.x-k8s.kind.cluster="+cluster).Output()
	must(t, err)
	return strings.Fields(string(out))
}

func removeNodes(t *testing.T, cluster string) {
	t.Helper()
	if left := nodeContainers(t, cluster); len(left) > 0 {
		docker(t, append([]string{"rm", "--force", "--volumes"}, left...)...)
	}
}
