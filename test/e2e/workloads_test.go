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
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestWorkloads orders what runs: PostgreSQL from the order to psql to an update, parts that reach each
// other, what does not start, and the conformance suite with a plan of kind workload.
func TestWorkloads(t *testing.T) {
	needMembers(t)
	images := workloadImages(t)
	s := serve(t)
	for _, name := range members {
		s.sluice("cluster", "add", name, "--from-kubeconfig", kubeconfig(name), "--region", "region-of-"+name)
	}
	for _, file := range []string{"workloads.yaml", filepath.Join(root, "charts/services/postgresql.yaml")} {
		text, err := os.ReadFile(file)
		must(t, err)
		here := filepath.Join(t.TempDir(), filepath.Base(file))
		must(t, os.WriteFile(here, []byte(images.Replace(string(text))), 0o600))
		s.sluice("catalog", "apply", "-f", here)
	}
	t.Run("PostgreSQL", func(t *testing.T) { postgresql(t, s.broker) })
	t.Run("who reaches whom", func(t *testing.T) { reach(t, s.broker) })
	t.Run("an image that is not there", func(t *testing.T) { brokenImage(t, s.broker) })
	t.Run("conformance", func(t *testing.T) {
		conformance(t, s.broker, "", "OSB_SERVICE_ID=workloads", "OSB_PLAN_ID=workloads-small", "OSB_OTHER_PLAN_ID=workloads-medium",
			"OSB_PENDING_PLAN_ID=workloads-nowhere", "OSB_FAILING_UPDATE_PLAN_ID=workloads-nowhere")
	})
	t.Run("nothing is left", func(t *testing.T) {
		for _, name := range members {
			nothingLeft(t, name)
		}
	})
}

// workloadImages loads the images onto the member clusters, and replaces the names of those that
// offerings have.
func workloadImages(t *testing.T) *strings.Replacer {
	t.Helper()
	out, err := output("test/kind/postgresql.sh")
	must(t, err)
	archive, reference, _ := strings.Cut(strings.TrimSpace(out), "\n")
	for _, name := range members {
		must(t, run("test/kind/load.sh", name, archive))
	}
	return strings.NewReplacer("docker.io/library/postgres:15", reference, "ECHO", echoImage)
}

// volumeFor makes a volume of 1 GiB on a cluster, which has no provisioner.
func volumeFor(t *testing.T, cluster, name string) {
	t.Helper()
	const folder = "/var/lib/sluice-e2e"
	path := folder + "/" + name
	must(t, exec.Command("docker", "exec", cluster+"-control-plane", "sh", "-c", "rm -rf "+path+"; mkdir -p -m 0777 "+path).Run())
	admin, _ := administrator(t, cluster)
	volumes := admin.CoreV1().PersistentVolumes()
	_, err := volumes.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "standard", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		_ = volumes.Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = exec.Command("docker", "exec", cluster+"-control-plane", "rm", "-rf", path).Run()
	})
}

// postgresql orders a database in a region, uses it, changes it, and kills it.
func postgresql(t *testing.T, b broker) {
	const id = "e2e-postgresql"
	cluster := members[0]
	volumeFor(t, cluster, id)
	p := b.findPlan(t, "postgresql", "small")
	refused := b.must(t, "PUT", "/v2/service_instances/"+id, p.query(), map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space",
		"parameters": map[string]any{"database": "No Name"},
	}, http.StatusBadRequest)
	if !strings.HasPrefix(fmt.Sprint(refused.body["description"]), "parameters/database: ") {
		t.Errorf("a wrong parameter is refused with %v", refused)
	}
	b.provision(t, id, p, map[string]any{"database": "shop", "selector": map[string]any{"topology.kubernetes.io/region": "region-of-" + cluster}})
	first := b.bind(t, id, "first", p, nil)
	if _, ok := first["kubeconfig"]; ok {
		t.Error("consumers of a database get an account on the cluster")
	}
	psql := func(t *testing.T, credentials map[string]any, want, statement string) {
		t.Helper()
		got, err := inDatabase(t, cluster, id, "psql", "--no-psqlrc", "--tuples-only", "--no-align", credentials["uri"].(string), "-c", statement)
		if err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", statement, got, err, want)
		}
	}
	psql(t, first, "CREATE TABLE", "CREATE TABLE orders (n int)")
	psql(t, first, "INSERT 0 1", "INSERT INTO orders VALUES (42)")
	psql(t, first, "50", "SHOW max_connections")

	b.must(t, "PATCH", "/v2/service_instances/"+id, p.query(), map[string]any{
		"service_id": p.service, "parameters": map[string]any{"database": "shop", "maxConnections": 77},
	}, http.StatusAccepted)
	b.await(t, id, "update "+id)
	psql(t, first, "77", "SHOW max_connections")

	second := b.bind(t, id, "second", p, map[string]any{"predecessor_binding_id": "first"})
	if first["username"] == second["username"] || first["password"] == second["password"] {
		t.Error("a rotation returns the same user or password")
	}
	psql(t, second, "INSERT 0 1", "INSERT INTO orders VALUES (43)")
	b.unbind(t, id, "first", p)
	if said, err := inDatabase(t, cluster, id, "psql", first["uri"].(string), "-c", "SELECT 1"); err == nil || !strings.Contains(said, "password authentication failed") {
		t.Errorf("the old password still works: %s (%v)", said, err)
	}
	psql(t, second, "42\n43", "SELECT n FROM orders ORDER BY n")

	admin, _ := administrator(t, cluster)
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))
	must(t, admin.AppsV1().StatefulSets(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	eventually(t, time.Minute, "the database comes back", func(ctx context.Context) string {
		db, err := admin.AppsV1().StatefulSets(namespace).Get(ctx, "db", metav1.GetOptions{})
		if err != nil || db.Status.ReadyReplicas != 1 {
			return fmt.Sprint("not ready: ", err)
		}
		return ""
	})
	psql(t, second, "2", "SELECT count(*) FROM orders")
	b.unbind(t, id, "second", p)
	b.deprovision(t, id, p)
}

// bind makes a binding and returns its credentials.
func (b broker) bind(t *testing.T, id, binding string, p plan, more map[string]any) map[string]any {
	t.Helper()
	path := "/v2/service_instances/" + id + "/service_bindings/" + binding
	body := map[string]any{"service_id": p.service, "plan_id": p.id}
	for field, value := range more {
		body[field] = value
	}
	b.must(t, "PUT", path, url.Values{"accepts_incomplete": {"true"}}, body, http.StatusCreated, http.StatusAccepted)
	eventually(t, time.Minute, "bind "+binding, func(ctx context.Context) string {
		a, err := b.do(ctx, "GET", path+"/last_operation", nil, nil)
		if a.body["state"] == "failed" {
			t.Fatalf("bind %s failed: %v", binding, a.body["description"])
		}
		if err != nil || a.body["state"] != "succeeded" {
			return fmt.Sprint(a, err)
		}
		return ""
	})
	return b.must(t, "GET", path, nil, nil, http.StatusOK).body["credentials"].(map[string]any)
}

// unbind deletes a binding and waits until it is gone.
func (b broker) unbind(t *testing.T, id, binding string, p plan) {
	t.Helper()
	path := "/v2/service_instances/" + id + "/service_bindings/" + binding
	b.must(t, "DELETE", path, p.query(), nil, http.StatusOK, http.StatusAccepted)
	eventually(t, time.Minute, "unbind "+binding, func(ctx context.Context) string {
		a, err := b.do(ctx, "GET", path+"/last_operation", nil, nil)
		if err != nil || a.status != http.StatusGone && a.status != http.StatusNotFound {
			return fmt.Sprint(a, err)
		}
		return ""
	})
}

// inDatabase runs a command in the pod of an instance's database and returns its output.
func inDatabase(t *testing.T, cluster, id string, command ...string) (string, error) {
	t.Helper()
	kubectl, err := buildKubectl()
	must(t, err)
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))
	args := append([]string{"--kubeconfig", kubeconfig(cluster), "--namespace", namespace, "exec", "statefulset/db", "--"}, command...)
	out, err := exec.CommandContext(t.Context(), kubectl, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// reach connects from one component to the other: the network enforces the reach of the ports.
func reach(t *testing.T, b broker) {
	const id = "e2e-parts"
	p := b.findPlan(t, "workloads", "parts")
	b.provision(t, id, p, nil)
	kubectl, err := buildKubectl()
	must(t, err)
	cluster, namespace := clusterOf(t, id), v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))
	ask := func(from, to string) func() (string, error) {
		return func() (string, error) {
			return inPod(kubectl, cluster, namespace, "deployment/"+from, "get", "http://"+to)
		}
	}
	answers(t, "inner asks web", ask("inner", "web"))
	answers(t, "inner asks itself", ask("inner", "inner"))
	silent(t, "web asks inner", ask("web", "inner"))
	b.deprovision(t, id, p)
}

// clusterOf finds the member cluster that an instance is on.
func clusterOf(t *testing.T, id string) string {
	t.Helper()
	namespace := v1alpha1.MemberNamespace(v1alpha1.InstanceName("first", id))
	for _, name := range members {
		admin, _ := administrator(t, name)
		if _, err := admin.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}); err == nil {
			return name
		}
	}
	t.Fatalf("%s is on no cluster", id)
	return ""
}

// brokenImage orders what cannot start. The platform learns why, and nothing stays.
func brokenImage(t *testing.T, b broker) {
	const id = "e2e-broken"
	p := b.findPlan(t, "workloads", "broken")
	b.must(t, "PUT", "/v2/service_instances/"+id, p.query(), map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space",
	}, http.StatusAccepted)
	said := ""
	eventually(t, 2*time.Minute, "the provision fails", func(ctx context.Context) string {
		a, err := b.do(ctx, "GET", "/v2/service_instances/"+id+"/last_operation", nil, nil)
		if err != nil || a.body["state"] != "failed" {
			return fmt.Sprint(a, err)
		}
		said = fmt.Sprint(a.body["description"])
		return ""
	})
	if !strings.HasPrefix(said, "web: 0 of 1 pods ready: ImagePullBackOff") && !strings.HasPrefix(said, "web: 0 of 1 pods ready: ErrImagePull") {
		t.Errorf("the provision failed with %q", said)
	}
	for _, name := range members {
		nothingLeft(t, name)
	}
	b.must(t, "DELETE", "/v2/service_instances/"+id, p.query(), nil, http.StatusOK, http.StatusAccepted)
	b.await(t, id, "deprovision "+id)
}
