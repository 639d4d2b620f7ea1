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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// covered are the writes that test/crash kills at.
const covered = `serviceinstances|servicebindings|serviceofferings|memberclusters|leases`

// endTour ends the tour, with -faults under a Sluice that is killed.
func (w *peeringWorld) endTour(t *testing.T) {
	if *faults {
		w.killed(t)
		return
	}
	w.broker.deprovision(t, tourID, w.broker.findPlan(t, "peered-workloads", "beside"))
}

// killed ends the tour, and plays the life of an instance with a virtual node once more, with a Sluice that is
// killed after each of its writes but those: there is one node and one slice in the end, and nothing
// after it.
func (w *peeringWorld) killed(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "sluice")
	build := exec.Command("go", "build", "-tags", "faults", "-o", binary, "./cmd/sluice")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build sluice: %v\n%s", err, out)
	}
	w.wantPeerings(t, "a far")           // those of the cluster that api has left have ended
	w.sluice("cluster", "cordon", "far") // on b, the node needs a new peering
	w.stop()
	s := w.restart(t, binary)

	tour := w.broker.findPlan(t, "peered-workloads", "beside")
	w.insist(t, "DELETE", tourID, tour.query(), nil, http.StatusAccepted, http.StatusOK, http.StatusGone)
	w.own(t, v1alpha1.ConsumerReference{Platform: "first", Organization: "org"})
	p := w.plan(t, &w.node, "small")
	w.insist(t, "PUT", "killed", url.Values{"accepts_incomplete": {"true"}}, map[string]any{
		"service_id": p.service, "plan_id": p.id, "organization_guid": "org", "space_guid": "space"}, http.StatusAccepted, http.StatusOK)
	w.broker.await(t, "killed", "provision, killed again and again")
	t.Logf("peered and provisioned in spite of %d kills", len(s.deaths()))
	var slices authv1beta1.ResourceSliceList
	must(t, liqoClient(t, peerConsumer).List(t.Context(), &slices))
	nodes, err := w.consumer.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelInstance})
	must(t, err)
	if len(slices.Items) != 1 || len(nodes.Items) != 1 || !isReady(&nodes.Items[0]) {
		t.Errorf("there are %d slices and %d nodes, want one each", len(slices.Items), len(nodes.Items))
	}
	w.insist(t, "DELETE", "killed", p.query(), nil, http.StatusAccepted, http.StatusOK, http.StatusGone)
	w.broker.await(t, "killed", "deprovision, killed again and again")
	w.broker.await(t, tourID, "deprovision of the tour, killed again and again")
	s.check(t)
}

// insist sends a request for an instance until it has one of the answers.
func (w *peeringWorld) insist(t *testing.T, method, id string, query url.Values, body any, want ...int) {
	t.Helper()
	eventually(t, 2*time.Minute, method, func(ctx context.Context) string {
		a, err := w.broker.do(ctx, method, "/v2/service_instances/"+id, query, body)
		switch {
		case err != nil:
			return err.Error()
		case !slices.Contains(want, a.status):
			return a.String()
		}
		return ""
	})
}

// peeringWrites are some of those that peer two clusters, extend a namespace and end both.
var peeringWrites = []string{
	"hub create peerings", "hub update peerings: ", "hub update peerings/status", "hub delete peerings",
	"cluster patch tenants", "cluster patch serviceaccounts", "cluster create serviceaccounts/token", "cluster patch configurations",
	"cluster patch gatewayservers", "cluster patch gatewayclients", "cluster patch publickeies",
	"cluster patch resourceslices", "cluster update resourceslices/status", "cluster patch namespaceoffloadings",
	"cluster delete namespaceoffloadings", "cluster delete resourceslices", "cluster delete tenants", "cluster delete foreignclusters",
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// mortal is a supervised Sluice that dies after each of its writes, once.
type mortal struct{ file string }

// deaths are the writes after which it has died.
func (m *mortal) deaths() []string {
	text, _ := os.ReadFile(m.file)
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// check fails the test if it did not die at what a peering takes.
func (m *mortal) check(t *testing.T) {
	t.Helper()
	deaths := m.deaths()
	t.Logf("%d kills in all", len(deaths))
	for _, write := range peeringWrites {
		if !slices.ContainsFunc(deaths, func(at string) bool { return strings.HasPrefix(at, write) }) {
			t.Errorf("it was not killed after %s", write)
		}
	}
	if t.Failed() {
		t.Log("it was killed after\n" + strings.Join(deaths, "\n"))
	}
}

// restart runs the binary on the server's data folder and address until the test ends, again
// whenever it is killed.
func (w *peeringWorld) restart(t *testing.T, binary string) *mortal {
	t.Helper()
	m := &mortal{file: filepath.Join(t.TempDir(), "armed")}
	must(t, os.WriteFile(m.file, nil, 0o600))
	log, err := os.Create(filepath.Join(t.TempDir(), "killed.log"))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var supervision sync.WaitGroup
	supervision.Go(func() {
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, binary, w.args...)
			cmd.Env = append(os.Environ(), "SLUICE_CRASH_FILE="+m.file, "SLUICE_CRASH_PAST="+covered)
			cmd.Stdout, cmd.Stderr = log, log
			err := cmd.Run()
			fmt.Fprintf(log, "--- ended: %v, after %d kills\n", err, len(m.deaths()))
		}
	})
	t.Cleanup(func() {
		cancel()
		supervision.Wait()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("log of the Sluice that was killed (its end):\n%s", text[max(0, len(text)-20_000):])
		}
	})
	ready(t, w.broker.url)
	return m
}
