package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement/controller"
	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// seen is a Sluice that a Prometheus scrapes, with a member cluster and, in the story, a broker behind it.
type seen struct {
	*served
	member     *controlplane.ControlPlane
	broker     *httptest.Server
	prometheus v1.API
}

// compute is an offering: no cluster is large enough for its plan huge, and orders of its plan patient wait.
const compute = `apiVersion: sluice.dev/v1alpha1
kind: ServiceOffering
metadata: {name: compute}
spec:
  id: compute
  name: compute
  description: Shares of a cluster
  plans:
  - {id: compute-small, name: small, description: A core, kind: resources, resources: {limits: {cpu: "1", memory: 1Gi, pods: "5"}}}
  - {id: compute-huge, name: huge, description: Many cores, kind: resources, resources: {limits: {cpu: 1k}}}
  - {id: compute-patient, name: patient, description: Many cores some day, kind: resources, waitFor: Anything, resources: {limits: {cpu: 1k}}}
`

// plays plays the story without a fault. Everything is done twice, with a scrape in between: a rate needs two values.
func (s *seen) plays(t *testing.T) {
	t.Helper()
	write := func(name string, content []byte) string {
		file := filepath.Join(s.dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	s.must("cluster", "add", "eu", "--from-kubeconfig", write("eu.kubeconfig", s.member.Kubeconfig()), "--region", "eu-de", "--provider", "acme")
	bottom := newGate(&suitetest.Broker{})
	bottom.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "service_bindings") {
			return false
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"credentials": {}, "metadata": {"expires_at": %q}}`, time.Now().Add(5*time.Second).UTC().Format(time.RFC3339Nano))
		return true
	}
	s.broker = httptest.NewServer(bottom)
	t.Cleanup(s.broker.Close)
	s.behind("bottom", s.broker.URL, "name-of-service", "")
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // accepts everything
	t.Cleanup(sink.Close)
	s.must("sink", "add", "audit", "--url", sink.URL, "--address", "127.0.0.0/8")
	s.must("catalog", "apply", "-f", write("compute.yaml", []byte(compute)))
	s.until("the broker's plans are sold", func(context.Context) error { return sells(s.served) })
	s.must("cluster", "latency", "eu", "--from", "bottom", "--median", "12ms")

	s.ends(t, http.MethodPut, "patient", "compute", "patient", "in progress")
	for _, id := range []string{"one", "two"} {
		s.ends(t, http.MethodPut, id, "compute", "small", "succeeded")
		s.isCounted("Placed")
		s.ends(t, http.MethodPut, id+"/service_bindings/b", "compute", "small", "succeeded")
		s.isCounted("Bound")
		s.ends(t, http.MethodDelete, id+"/service_bindings/b", "compute", "small", "gone")
		s.ends(t, http.MethodPut, id+"/service_bindings/c", "compute", "small", "succeeded")
	}
	s.ends(t, http.MethodDelete, "one", "compute", "small", "gone")
	s.ends(t, http.MethodPut, "far", "upstream", "small", "succeeded")
}

// breaks makes the faults that alerts are about.
func (s *seen) breaks(t *testing.T) {
	t.Helper()
	s.ends(t, http.MethodPut, "huge", "compute", "huge", "failed")
	s.ends(t, http.MethodPut, "far/service_bindings/b", "upstream", "small", "succeeded") // its credentials end soon
	s.must("peering", "add", "bottom", "eu", "--wait", "0")                               // neither has Liqo
	s.leavesRemnant(t)

	s.broker.CloseClientConnections()
	s.broker.Close()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "hub.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	hub, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	far := &v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: v1alpha1.InstanceName("first", "far")}}
	look := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "now"}}}`, controller.AnnotationObserve)
	if err := hub.Patch(t.Context(), far, client.RawPatch("application/merge-patch+json", look)); err != nil {
		t.Fatal(err)
	}
}

// leavesRemnant makes a namespace of an instance that there is not.
func (s *seen) leavesRemnant(t *testing.T) {
	t.Helper()
	admin, err := client.New(s.member.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var namespaces corev1.NamespaceList
	if err := admin.List(t.Context(), &namespaces, client.HasLabels{v1alpha1.LabelInstance}); err != nil || len(namespaces.Items) == 0 {
		t.Fatalf("namespaces of instances: %d, %v", len(namespaces.Items), err)
	}
	left := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left", Labels: namespaces.Items[0].Labels, Annotations: namespaces.Items[0].Annotations}}
	left.Labels[v1alpha1.LabelInstance] = v1alpha1.InstanceName("first", "gone")
	if err := admin.Create(t.Context(), left); err != nil {
		t.Fatal(err)
	}
}

// ends sends a request about an instance or a binding of a plan, and waits until the operation is in a state.
func (s *seen) ends(t *testing.T, method, id, service, plan, state string) {
	t.Helper()
	path := "/v2/service_instances/" + id
	plan = map[string]string{"compute": "compute-", "upstream": "ours-"}[service] + plan
	status, body := s.send(t, method, path+"?accepts_incomplete=true&service_id="+service+"&plan_id="+plan,
		`{"service_id": "`+service+`", "plan_id": "`+plan+`", "organization_guid": "o", "space_guid": "s"}`)
	if status != http.StatusAccepted && status != http.StatusOK && status != http.StatusCreated {
		t.Fatalf("%s %s is answered %d %s", method, id, status, body)
	}
	s.until(fmt.Sprintf("%s %s: %s", method, id, state), func(ctx context.Context) error {
		status, body, err := s.ask(ctx, http.MethodGet, path+"/last_operation", "")
		var said struct{ State string }
		_ = json.Unmarshal([]byte(body), &said)
		if err == nil && said.State != state && (state != "gone" || status != http.StatusGone && status != http.StatusNotFound) {
			err = fmt.Errorf("it is %d %s", status, body)
		}
		return err
	})
}

// isCounted waits until Prometheus has an event of compute.
func (s *seen) isCounted(event string) {
	s.Helper()
	s.hasData("event "+event, `sluice_events_total{service="compute", plan="small", type="`+event+`"}`)
}
