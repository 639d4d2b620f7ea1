package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/servicecatalog"
)

// catalogued is a Sluice that a Service Catalog orders from, which runs on the member cluster.
type catalogued struct {
	*served
	gate        *gate
	platform    client.Client // of the cluster
	hub         client.Client
	at          string // URL of the ingress
	authority   []byte // that vouches for it, in PEM
	folder      string // of the shell
	environment []string
	consumer    client.Client // with the binding's credentials
	namespace   string        // of the instance there
}

// TestServiceCatalog runs the commands of docs/platforms.md for the Kubernetes Service Catalog, byte for byte, against
// its real webhooks and controllers. Beside them it orders what is refused, what gets no answer, and as another platform.
func TestServiceCatalog(t *testing.T) {
	t.Parallel()
	c := newCatalogued(t)
	steps := []struct {
		name   string
		before func()
		check  func(said string)
	}{
		{name: "register", check: c.registered},
		{name: "order", before: c.orderBeside, check: c.ordered},
		{name: "bind", check: c.bound},
		{name: "change", check: c.changed},
		{name: "relist", before: c.sellMore, check: c.relisted},
		{name: "delete", before: c.deleteBeside, check: c.deleted},
	}
	commands := commandsFor(t, "## Kubernetes Service Catalog")
	if len(commands) != len(steps) {
		t.Fatalf("docs/platforms.md has %d blocks of commands, want %d", len(commands), len(steps))
	}
	for i, step := range steps {
		if step.before != nil {
			step.before()
		}
		run := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands[i])
		run.Dir, run.Env = c.folder, c.environment
		said, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s\n%s", step.name, err, commands[i], said)
		}
		step.check(string(said))
	}
}

// commandsFor returns the shell blocks of a section of docs/platforms.md.
func commandsFor(t *testing.T, heading string) (commands []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "platforms.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, found := range block.FindAllStringSubmatch(section, -1) {
		commands = append(commands, found[2])
	}
	return commands
}

// newCatalogued starts both, on one cluster, with an ingress that terminates TLS in front of Sluice. The platform second
// hears "succeeded" of its deletions, the first that they are gone.
func newCatalogued(t *testing.T) *catalogued {
	t.Helper()
	cluster := controlplane.Start(t, controlplane.Options{Name: "shop", Nodes: []controlplane.Node{{Name: "node", CPU: "4", Memory: "8Gi", Pods: "100"}}})
	servicecatalog.Start(t, cluster)
	c := &catalogued{folder: t.TempDir()}
	write := func(name string, content []byte) string {
		if err := os.WriteFile(filepath.Join(c.folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(c.folder, name)
	}
	c.served = serveAnother(t, "sluice", "--platforms", write("platforms.yaml", []byte(`platforms:
- name: first
  basic: [{username: first, password: first-password}]
- name: second
  basic: [{username: second, password: second-password}]
  deletedLastOperation: succeeded
`)))
	kubeconfig := write("kubeconfig", cluster.Kubeconfig())
	c.must("cluster", "add", "here", "--from-kubeconfig", kubeconfig)
	c.must("catalog", "apply", "-f", filepath.Join("..", "..", "docs", "examples", "offering.yaml"))

	sluice, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	c.gate = newGate(httputil.NewSingleHostReverseProxy(sluice))
	var lost atomic.Bool
	c.gate.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || r.URL.Path != "/v2/service_instances/unheard" || lost.Swap(true) {
			return false
		}
		w.WriteHeader(http.StatusBadGateway)
		return true
	}
	ingress := httptest.NewTLSServer(c.gate)
	t.Cleanup(ingress.Close)
	c.at, c.authority = ingress.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ingress.Certificate().Raw})
	write("ca.crt", c.authority)
	kubectl, err := controlplane.Binaries(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.environment = []string{
		"PATH=" + kubectl + ":" + os.Getenv("PATH"), "HOME=" + c.folder, "KUBECONFIG=" + kubeconfig,
		envURL + "=" + c.at, envUsername + "=first", envPassword + "=first-password",
	}
	if c.platform, err = client.New(cluster.Config(), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	c.hub = c.clientOf(filepath.Join(c.dir, "hub.kubeconfig"))
	return c
}

// clientOf returns a client with a kubeconfig.
func (c *catalogued) clientOf(file string) client.Client {
	c.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		c.Fatal(err)
	}
	made, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		c.Fatal(err)
	}
	return made
}

// find returns an object of Service Catalog.
func (c *catalogued) find(ctx context.Context, kind, namespace, name string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "servicecatalog.k8s.io", Version: "v1beta1", Kind: kind})
	return o, c.platform.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
}

// names lists objects of Service Catalog by their external names.
func (c *catalogued) names(ctx context.Context, kind string) (names []string, err error) {
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(schema.GroupVersionKind{Group: "servicecatalog.k8s.io", Version: "v1beta1", Kind: kind + "List"})
	err = c.platform.List(ctx, &all)
	for _, o := range all.Items {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "externalName")
		names = append(names, name)
	}
	return names, err
}

// becomes waits until a ServiceInstance has a condition, and returns the condition's message.
func (c *catalogued) becomes(namespace, name, condition string) (message string) {
	c.Helper()
	c.until(name+" is "+condition, func(ctx context.Context) error {
		o, err := c.find(ctx, "ServiceInstance", namespace, name)
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, one := range conditions {
			if one := one.(map[string]any); one["type"] == condition && one["status"] == "True" {
				message = one["message"].(string)
				return nil
			}
		}
		return fmt.Errorf("it has the conditions %v", conditions)
	})
	return message
}
