package capi

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/controlplane"
)

// Class is a ClusterClass named simulated, in the namespace default, with its templates: a managed control plane, and
// workers of the class worker. Its variables are workerCPU and workerMemory (quantities), and fails (a reason why no
// worker ever comes up).
//
//go:embed class.yaml
var Class []byte

// DockerClass is a ClusterClass named docker, in the namespace default: kubeadm on containers that are nodes. Its
// variable image names the containers' image.
//
//go:embed docker.yaml
var DockerClass []byte

// Options of a management cluster. The zero value has the simulated provider, and a control plane for each cluster.
type Options struct {
	// Docker takes the providers of kubeadm and Docker instead, whose daemon must answer.
	Docker bool
	// Shared gives all simulated clusters the same control plane: for making many.
	Shared bool
	// LogDir keeps the logs of all processes; when empty they go with the bed.
	LogDir string
}

// Bed is a management cluster with Cluster API and a provider.
type Bed struct {
	*controlplane.ControlPlane
	// Client has the rights of an administrator.
	Client client.Client

	folder   string
	provider *provider
}

// Start starts a management cluster for the length of a test, and builds what it needs once on a machine.
func Start(t testing.TB, o Options) *Bed {
	t.Helper()
	if o.LogDir == "" {
		o.LogDir = t.ArtifactDir()
	}
	bed, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	return bed
}

// New is Start without a test: the management cluster runs until Stop. ctx bounds the starting only.
func New(ctx context.Context, o Options) (*Bed, error) {
	bed := &Bed{}
	if err := bed.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start a Cluster API management cluster: %w", err), bed.Stop())
	}
	return bed, nil
}

// Stop ends the management cluster, and all simulated clusters that it has made.
func (b *Bed) Stop() error {
	var errs []error
	if b.provider != nil {
		errs = append(errs, b.provider.stop())
	}
	if b.ControlPlane != nil {
		errs = append(errs, b.ControlPlane.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(b.folder))...)
}

func (b *Bed) start(ctx context.Context, o Options) (err error) {
	managers := []string{"core"}
	if o.Docker {
		managers = []string{"core", "bootstrap", "controlplane", "docker"}
	}
	built, err := build(ctx, managers)
	if err != nil {
		return err
	}
	if b.folder, err = os.MkdirTemp("", "capi-"); err != nil {
		return err
	}
	b.ControlPlane, err = controlplane.New(ctx, controlplane.Options{Name: "management", LogDir: o.LogDir, Nodes: []controlplane.Node{{Name: "node-1"}}})
	if err != nil {
		return err
	}
	if b.Client, err = client.New(b.Config(), client.Options{Scheme: runtime.NewScheme()}); err != nil {
		return err
	}
	kubeconfig := filepath.Join(b.folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, b.Kubeconfig(), 0o600); err != nil {
		return err
	}
	var webhooks []*webhook
	for _, name := range managers {
		w, err := newWebhook(name, filepath.Join(b.folder, name))
		if err != nil {
			return err
		}
		webhooks = append(webhooks, w)
		if err := b.install(ctx, filepath.Join(built, name, "config"), w); err != nil {
			return err
		}
	}
	if !o.Docker {
		b.provider = newProvider(b.Client, b.Config(), o.Shared)
		if err := b.provider.start(ctx); err != nil {
			return fmt.Errorf("start the simulated provider: %w", err)
		}
	}
	for i, name := range managers {
		if err := b.Run(filepath.Join(built, name, "capi-"+name), flags(kubeconfig, webhooks[i])...); err != nil {
			return err
		}
	}
	for _, w := range webhooks {
		if err := w.await(ctx); err != nil {
			return fmt.Errorf("the manager %s does not listen: %w", w.manager, err)
		}
	}
	return nil
}

// flags of a manager.
func flags(kubeconfig string, w *webhook) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--feature-gates=ClusterTopology=true,MachinePool=false",
		"--webhook-port=" + strconv.Itoa(w.port), "--webhook-cert-dir=" + w.folder,
		"--health-addr=127.0.0.1:0", "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics=true",
		"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
	}
}

// build returns the folder with the managers and their manifests.
func build(ctx context.Context, managers []string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		script := filepath.Join(dir, "test", "capi", "manager", "build.sh")
		if _, err := os.Stat(script); err == nil {
			out, err := exec.CommandContext(ctx, script, managers...).Output()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return "", fmt.Errorf("%s: %w\n%s", script, err, exit.Stderr)
			}
			return strings.TrimSpace(string(out)), err
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no test/capi/manager/build.sh here or above: run it from within the source tree")
		}
	}
}

// webhook is the address at which a manager answers the API server.
type webhook struct {
	manager  string
	folder   string
	port     int
	caBundle []byte
}

func newWebhook(manager, folder string) (*webhook, error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	authority, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	for name, data := range map[string][]byte{"tls.crt": authority, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return nil, err
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer free.Close() // the manager listens on it next
	return &webhook{manager: manager, folder: folder, port: free.Addr().(*net.TCPAddr).Port, caBundle: authority}, nil
}

func (w *webhook) url(path string) string { return fmt.Sprintf("https://127.0.0.1:%d%s", w.port, path) }

func (w *webhook) await(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.port))
		if err != nil {
			return false, nil // not yet
		}
		return true, connection.Close()
	})
}

// install applies Cluster API's definitions and webhook configurations, which are made for its own installation by
// kustomize: services become URLs of the process.
func (b *Bed) install(ctx context.Context, config string, w *webhook) error {
	definitions, err := filepath.Glob(filepath.Join(config, "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range append(definitions, filepath.Join(config, "webhook", "manifests.yaml")) {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := b.apply(ctx, data, w.redirect); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

func (w *webhook) redirect(o *unstructured.Unstructured) {
	bundle := base64.StdEncoding.EncodeToString(w.caBundle)
	if o.GetKind() == "CustomResourceDefinition" {
		if w.manager != "core" {
			labels := map[string]string{}
			for _, version := range []string{"v1beta1", "v1beta2"} { // the contracts, and the version that follows each
				labels["cluster.x-k8s.io/"+version] = version
			}
			o.SetLabels(labels)
		}
		_ = unstructured.SetNestedField(o.Object, map[string]any{
			"strategy": "Webhook",
			"webhook": map[string]any{
				"clientConfig":             map[string]any{"url": w.url("/convert"), "caBundle": bundle},
				"conversionReviewVersions": []any{"v1", "v1beta1"},
			},
		}, "spec", "conversion")
		return
	}
	o.SetName(w.manager + "-" + o.GetName()) // all managers use the same names
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, hook := range hooks {
		path, _, _ := unstructured.NestedString(hook.(map[string]any), "clientConfig", "service", "path")
		hook.(map[string]any)["clientConfig"] = map[string]any{"url": w.url(path), "caBundle": bundle}
	}
	_ = unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

// Apply creates objects from YAML documents, or brings those that are there up to date.
func (b *Bed) Apply(ctx context.Context, documents []byte) error {
	return b.apply(ctx, documents, func(*unstructured.Unstructured) {})
}

func (b *Bed) apply(ctx context.Context, documents []byte, change func(*unstructured.Unstructured)) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); err != nil {
			if err.Error() == "EOF" {
				return nil
			}
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		change(o)
		// A definition that is new is served, and a webhook answers, after a moment.
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			err := b.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"), client.ForceOwnership)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsInternalError(err) {
				return false, nil
			}
			return true, err
		})
		if err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
}

// Workload is the control plane of a cluster that was made, nil while there is none.
func (b *Bed) Workload(namespace, cluster string) *controlplane.ControlPlane {
	return b.provider.workload(client.ObjectKey{Namespace: namespace, Name: cluster})
}

// Workloads is the number of clusters that are there, as the provider has them.
func (b *Bed) Workloads() int { return b.provider.count() }
