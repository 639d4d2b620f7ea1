package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/hub/hubtest"
	"github.com/sluice-dev/sluice/test/loopback"
)

// TestServeBeforeTheCacheHasReadEverything: while the hub is still handing out its instances, the
// catalog is served, and so is the health, beside the metrics. An order waits until they are counted, because
// limits hold from the start.
func TestServeBeforeTheCacheHasReadEverything(t *testing.T) {
	t.Setenv("SLUICE_TEST_HUB", "kube")
	h := hubtest.Start(t)
	c, err := client.New(h.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	offer(t, c, h.Namespace)
	handOut := make(chan struct{})
	slow := slowHub(t, h.Config, handOut)

	dir := t.TempDir()
	platforms := filepath.Join(dir, "platforms.yaml")
	if err := os.WriteFile(platforms, []byte("platforms:\n- {name: first, basic: [{username: u, password: p}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, metrics := loopback.Address(), loopback.Address()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		cmd := newCommand()
		cmd.SetArgs([]string{"serve", "--kubeconfig", slow, "--namespace", h.Namespace, "--platforms", platforms,
			"--keyset", filepath.Join(dir, "keyset.json"), "--listen", address, "--metrics-listen", metrics, "--collect", "off"})
		ended <- cmd.ExecuteContext(ctx)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	sendTo := func(ctx context.Context, address, method, path, body string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		r.SetBasicAuth("u", "p")
		r.Header.Set("X-Broker-API-Version", "2.17")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}
	send := func(ctx context.Context, method, path, body string) (int, error) {
		return sendTo(ctx, address, method, path, body)
	}

	patient, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for status := 0; status != http.StatusOK; {
		if status, err = send(patient, http.MethodGet, "/v2/catalog", ""); patient.Err() != nil {
			t.Fatalf("the catalog is not served: %d, %v", status, err)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, err := sendTo(patient, metrics, http.MethodGet, path, ""); err != nil || status != http.StatusOK {
			t.Errorf("%s beside the metrics: %d, %v", path, status, err)
		}
	}
	ordered := make(chan error, 1)
	go func() {
		status, err := send(patient, http.MethodPut, "/v2/service_instances/early?accepts_incomplete=true",
			`{"service_id": "served-early", "plan_id": "served-early-small", "organization_guid": "o", "space_guid": "s"}`)
		if err == nil && status != http.StatusAccepted {
			err = fmt.Errorf("the order is answered %d", status)
		}
		ordered <- err
	}()
	if status, err := send(patient, http.MethodGet, "/v2/service_instances/other", ""); err != nil || status != http.StatusNotFound {
		t.Errorf("an instance that there is not: %d, %v", status, err)
	}
	key := client.ObjectKey{Namespace: h.Namespace, Name: v1alpha1.InstanceName("first", "early")}
	if err := c.Get(ctx, key, &v1alpha1.ServiceInstance{}); !apierrors.IsNotFound(err) {
		t.Errorf("the order was stored before anything was counted: %v", err)
	}
	close(handOut)
	if err := <-ordered; err != nil {
		t.Error(err)
	}
}

// offer stores an offering that the catalog has accepted.
func offer(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	var offering v1alpha1.ServiceOffering
	if err := yaml.UnmarshalStrict([]byte(`
spec:
  id: served-early
  name: served-early
  description: Served early
  plans: [{id: served-early-small, name: small, description: Small, kind: resources, waitFor: Anything, resources: {limits: {cpu: 1m}}}]
`), &offering); err != nil {
		t.Fatal(err)
	}
	offering.Namespace, offering.Name = namespace, "served-early"
	if err := c.Create(t.Context(), &offering); err != nil {
		t.Fatal(err)
	}
	offering.Status.Accepted = offering.Spec.DeepCopy()
	if err := c.Status().Update(t.Context(), &offering); err != nil {
		t.Fatal(err)
	}
}

// slowHub returns the kubeconfig of a hub that hands out its instances only after the channel is
// closed.
func slowHub(t *testing.T, hub *rest.Config, handOut <-chan struct{}) (kubeconfig string) {
	t.Helper()
	transport, err := rest.TransportFor(hub)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(hub.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport, proxy.FlushInterval = transport, -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/serviceinstances") {
			select {
			case <-handOut:
			case <-r.Context().Done():
				return
			}
		}
		r.Header.Del("Accept-Encoding") // the hub's transport reads answers, and so asks for gzip itself
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections() // Close would wait for watches
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["hub"], config.CurrentContext = &clientcmdapi.Context{Cluster: "hub"}, "hub"
	kubeconfig = filepath.Join(t.TempDir(), "hub.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}
