//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// whatTakesTime selects the specs of orders, updates, bindings and deletions that are carried out,
// which wait for a workload's pods and hooks. What is refused, and how ids, plans and operations are
// shown, is the same code for each kind of plan.
const whatTakesTime = "F1 || U1 || L1 || B1 || D1 || D2"

// TestWorkloads orders what runs: each of charts/services from the order to its use, an update and a
// rotation; parts that reach each other, what does not start, a site behind a Gateway, and the conformance
// suite with a plan of kind workload.
func TestWorkloads(t *testing.T) {
	needMembers(t)
	images := loadImages(t, services())
	folder, digest := chartFolder(t)
	kept := newBackups(t)
	s := serve(t, "--charts", folder, "--backup-target", kept.file)
	for _, name := range members {
		s.sluice("cluster", "add", name, "--from-kubeconfig", kubeconfig(name), "--region", "region-of-"+name)
	}
	files, err := filepath.Glob(filepath.Join(root, "charts/services/*.yaml"))
	must(t, err)
	for _, file := range append(files, "workloads.yaml") {
		s.sluice("catalog", "apply", "-f", images.in(t, file, "\"CHART\"", digest))
	}
	if len(services()) != len(files) {
		t.Errorf("%d services are tested, charts/services has %d", len(services()), len(files))
	}
	t.Run("side by side", func(t *testing.T) {
		besides(t, "conformance", func(t *testing.T) {
			// The pods of twelve instances start and stop side by side, on two processors.
			conformance(t, s.broker, whatTakesTime, "OSB_TIMEOUT=3m", "OSB_SERVICE_ID=workloads", "OSB_PLAN_ID=workloads-small", "OSB_OTHER_PLAN_ID=workloads-medium",
				"OSB_PENDING_PLAN_ID=workloads-nowhere", "OSB_FAILING_UPDATE_PLAN_ID=workloads-nowhere")
		})
		for _, one := range services() {
			volumeFor(t, one.cluster, "e2e-"+one.name)
			besides(t, one.name, func(t *testing.T) { one.story(t, s.broker) })
		}
		besides(t, "a bind hook returns a token", func(t *testing.T) { returnedToken(t, s.broker) })
		besides(t, "who reaches whom", func(t *testing.T) { reach(t, s.broker) })
		besides(t, "a chart from a private registry", func(t *testing.T) { privateChart(t, s.broker) })
		besides(t, "an image that is not there", func(t *testing.T) { brokenImage(t, s.broker) })
	})
	t.Run("two Sluices", func(t *testing.T) {
		besides(t, "one changes its clusters", func(t *testing.T) { // and with them whatever else it has
			t.Run("data moves and is restored", func(t *testing.T) { dataMoves(t, s, kept) })
			t.Run("a copy in every region", func(t *testing.T) { copies(t, s) })
		})
		besides(t, "the other has a Gateway", exposure)
	})
	t.Run("nothing is left", func(t *testing.T) {
		for _, name := range members {
			nothingLeft(t, name)
		}
	})
}

// besides runs a subtest beside its siblings.
func besides(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// images of services: the names that offerings have for them, each followed by the one of what was
// built, and the archives.
type images struct{ names, archives []string }

// in returns a copy of an offering's file with these images, and with further words replaced.
func (i images) in(t *testing.T, file string, more ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	here := filepath.Join(t.TempDir(), filepath.Base(file))
	must(t, os.WriteFile(here, []byte(strings.NewReplacer(slices.Concat(i.names, more)...).Replace(string(text))), 0o600))
	return here
}

// loadImages builds the images of services, and loads each onto the cluster that the service is ordered on.
func loadImages(t *testing.T, all []service) images {
	t.Helper()
	built, archives := images{names: []string{"ECHO", echoImage}}, map[string][]string{}
	for _, s := range all {
		archive, reference := s.build(t, s.program)
		built.names, built.archives = append(built.names, s.image, reference), append(built.archives, archive)
		if s.name == "postgresql" {
			built.names = append(built.names, curlImage, reference)
		}
		archives[s.cluster] = append(archives[s.cluster], archive)
	}
	for cluster, of := range archives {
		must(t, run("test/kind/load.sh", append([]string{cluster}, of...)...))
	}
	return built
}

// volumeFor makes a volume of 1 GiB on a cluster, which has no provisioner, for as long as the test runs.
func volumeFor(t *testing.T, cluster, name string) {
	t.Helper()
	must(t, run("test/kind/volume.sh", cluster, name))
	admin, _ := administrator(t, cluster)
	t.Cleanup(func() {
		_ = admin.CoreV1().PersistentVolumes().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
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
	eventually(t, 3*time.Minute, "bind "+binding, func(ctx context.Context) string {
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
	nothingLeftOf(t, id)
	b.must(t, "DELETE", "/v2/service_instances/"+id, p.query(), nil, http.StatusOK, http.StatusAccepted)
	b.await(t, id, "deprovision "+id)
}
