package capi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/hosted"
	"github.com/sluice-dev/sluice/test/loopback"
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
	built, err := hosted.Build(ctx, "test/capi/manager/build.sh", managers...)
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
		server, err := hosted.NewServer(filepath.Join(b.folder, name), loopback.Port())
		if err != nil {
			return err
		}
		w := &webhook{server, name}
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
		if err := b.Run(filepath.Join(built, name, "capi-"+name), nil, flags(kubeconfig, webhooks[i])...); err != nil {
			return err
		}
	}
	for _, w := range webhooks {
		if err := w.Await(ctx); err != nil {
			return fmt.Errorf("the manager %s: %w", w.manager, err)
		}
	}
	return nil
}

// flags of a manager.
func flags(kubeconfig string, w *webhook) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--feature-gates=ClusterTopology=true,MachinePool=false",
		"--webhook-port=" + strconv.Itoa(w.Port), "--webhook-cert-dir=" + w.Folder,
		"--health-addr=127.0.0.1:0", "--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics=true",
		"--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
	}
}

// webhook is a manager as the API server calls it.
type webhook struct {
	*hosted.Server
	manager string
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
		if err := hosted.Apply(ctx, b.Client, data, w.redirect); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// redirect makes definitions and webhooks call the manager. All managers use the same names for their webhooks, and
// those of providers tell Cluster API by labels which of its contracts they keep.
func (w *webhook) redirect(o *unstructured.Unstructured) {
	if o.GetKind() != "CustomResourceDefinition" {
		o.SetName(w.manager + "-" + o.GetName())
		w.Redirect(o)
		return
	}
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
			"clientConfig":             w.ClientConfig("/convert"),
			"conversionReviewVersions": []any{"v1", "v1beta1"},
		},
	}, "spec", "conversion")
}

// Apply creates objects from YAML documents, or brings those that are there up to date.
func (b *Bed) Apply(ctx context.Context, documents []byte) error {
	return hosted.Apply(ctx, b.Client, documents)
}

// Workload is the control plane of a cluster that was made, nil while there is none.
func (b *Bed) Workload(namespace, cluster string) *controlplane.ControlPlane {
	return b.provider.workload(client.ObjectKey{Namespace: namespace, Name: cluster})
}

// Workloads is the number of clusters that are there, as the provider has them.
func (b *Bed) Workloads() int { return b.provider.count() }
