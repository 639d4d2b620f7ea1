//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/charts/chartstest"
)

// privateImage is the chart's image in workloads.yaml: in a registry on the node itself.
const privateImage = "localhost:5998/private/echo:1"

// chartFolder returns a folder with a chart, and the chart's digest.
func chartFolder(t *testing.T) (folder, digest string) {
	t.Helper()
	folder = t.TempDir()
	archive := chartstest.Pack(t, chartstest.Web(t, nil))
	must(t, os.WriteFile(filepath.Join(folder, "web.tgz"), archive, 0o600))
	return folder, charts.Digest(archive)
}

// privateRegistry runs a registry on a node, with the image of the echo workload. The node itself keeps
// no image of that name.
func privateRegistry(t *testing.T, cluster, user, password string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "registry")
	must(t, onPath("go", "build", "-o", program, "./test/e2e/registry"))
	node := cluster + "-control-plane"
	must(t, onPath("docker", "cp", program, node+":/usr/local/bin/sluice-registry"))
	address, _, _ := strings.Cut(privateImage, "/")
	must(t, onPath("docker", "exec", "--detach", node, "sh", "-c",
		fmt.Sprintf("echo $$ >/run/sluice-registry.pid; exec sluice-registry %s %s %s 10m", address, user, password)))
	t.Cleanup(func() {
		_ = exec.Command("docker", "exec", node, "sh", "-c", "kill $(cat /run/sluice-registry.pid)").Run()
	})
	ctr := func(args ...string) error {
		return onPath("docker", append([]string{"exec", node, "ctr", "--namespace", "k8s.io", "images"}, args...)...)
	}
	must(t, ctr("tag", "--force", "docker.io/"+echoImage, privateImage))
	eventually(t, time.Minute, "the registry takes the image", func(context.Context) string {
		if err := ctr("push", "--plain-http", "--user", user+":"+password, privateImage); err != nil {
			return err.Error()
		}
		return ""
	})
	must(t, ctr("rm", "--sync", privateImage))
}

// onPath runs a program of the machine in the source tree; the error has what it said.
func onPath(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

// privateChart orders a release of a chart whose image is in a private registry.
func privateChart(t *testing.T, b broker) {
	const user, password = "ann", "as-long-as-it-is-secret"
	cluster := members[0]
	privateRegistry(t, cluster, user, password)
	p := b.findPlan(t, "workloads", "private")
	parameters := func(password string) map[string]any {
		return map[string]any{
			"registry": map[string]any{"username": user, "password": password}, "replicas": 2,
			"selector": map[string]any{"topology.kubernetes.io/region": "region-of-" + cluster},
		}
	}
	refused := b.must(t, "PUT", "/v2/service_instances/e2e-chart", p.query(), map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space",
		"parameters": map[string]any{"replicas": 6},
	}, http.StatusBadRequest)
	if said := fmt.Sprint(refused.body["description"]); !strings.HasPrefix(said, "parameters: missing property 'registry'") {
		t.Errorf("an order without the registry's user is refused with %s", said)
	}

	b.must(t, "PUT", "/v2/service_instances/e2e-chart-wrong", p.query(), map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space", "parameters": parameters("wrong"),
	}, http.StatusAccepted)
	eventually(t, 3*time.Minute, "the wrong password is noticed", func(ctx context.Context) string {
		a, err := b.do(ctx, "GET", "/v2/service_instances/e2e-chart-wrong/last_operation", nil, nil)
		said := fmt.Sprint(a.body["description"])
		if err != nil || !strings.Contains(said, "ErrImagePull") && !strings.Contains(said, "ImagePullBackOff") {
			return fmt.Sprint(a, err)
		}
		return ""
	})
	b.deprovision(t, "e2e-chart-wrong", p)

	b.provision(t, "e2e-chart", p, parameters(password))
	admin, _ := administrator(t, cluster)
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", "e2e-chart"))
	deployment, err := admin.AppsV1().Deployments(namespace).Get(t.Context(), "site", metav1.GetOptions{})
	must(t, err)
	if deployment.Status.ReadyReplicas != 2 {
		t.Errorf("%d pods of the chart are ready, want 2", deployment.Status.ReadyReplicas)
	}
	shown := b.must(t, "GET", "/v2/service_instances/e2e-chart", nil, nil, http.StatusOK)
	if text := fmt.Sprint(shown); strings.Contains(text, password) || strings.Contains(text, "registry") {
		t.Errorf("the registry's user is shown: %s", text)
	}
	b.deprovision(t, "e2e-chart", p)
}
