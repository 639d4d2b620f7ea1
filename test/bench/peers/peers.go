// Package peers runs Karmada and Open Cluster Management (OCM) as they are installed: their own controllers, at the
// versions that the modules in the folders beside it pin, on control planes of this machine, with a member cluster that
// is there. What both limit by default, requests a second to an API server, is not limited.
package peers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/hosted"
)

// Namespace of the member cluster in which the peers' Deployments run.
const Namespace = "peers"

// patience is how long a peer may take to be ready for use.
const patience = 2 * time.Minute

// member is the name by which the peers know the cluster.
const member = "member"

// Peer is a system that runs Deployments on a member cluster.
type Peer interface {
	// Order asks for a Deployment in Namespace on the member cluster, and returns when that is accepted.
	Order(ctx context.Context, d *appsv1.Deployment) error
	// Settle blocks until nothing is under way for what was ordered by this name.
	Settle(ctx context.Context, name string) error
	// Cancel asks for the end of what was ordered by this name, and returns when that is accepted.
	Cancel(ctx context.Context, name string) error
	// Stop ends the system, and leaves what it has made on the member cluster.
	Stop() error
}

// hub is the control plane that a peer is used by, and its programs.
type hub struct {
	*controlplane.ControlPlane
	client     client.Client
	programs   string // the folder of the programs
	manifests  string // the folder of the manifests
	kubeconfig string // files
	member     string
}

// newHub starts a control plane for a peer, with its definitions. The name is that of its folders.
func newHub(ctx context.Context, name, folder string, cluster *controlplane.ControlPlane, o controlplane.Options) (*hub, error) {
	built, err := hosted.Build(ctx, "test/bench/peers/build.sh")
	if err != nil {
		return nil, err
	}
	folder = filepath.Join(folder, name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	o.Name = name
	plane, err := controlplane.New(ctx, o)
	if err != nil {
		return nil, err
	}
	h := &hub{
		ControlPlane: plane, programs: filepath.Join(built, "bin", name), manifests: filepath.Join(built, name),
		kubeconfig: filepath.Join(folder, "hub"), member: filepath.Join(folder, "member"),
	}
	if err := h.prepare(ctx, cluster); err != nil {
		_ = plane.Stop() // after the error that matters
		return nil, err
	}
	return h, nil
}

func (h *hub) prepare(ctx context.Context, cluster *controlplane.ControlPlane) (err error) {
	if err := os.WriteFile(h.kubeconfig, h.Kubeconfig(), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(h.member, cluster.Kubeconfig(), 0o600); err != nil {
		return err
	}
	h.client, err = client.New(h.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	return err
}

// define applies the definitions among the peer's manifests to a cluster.
func define(ctx context.Context, c client.Client, files ...string) error {
	for _, file := range files {
		documents, err := os.ReadFile(file)
		if err == nil {
			err = hosted.Apply(ctx, c, documents)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

// apply creates objects from YAML documents.
func (h *hub) apply(ctx context.Context, documents string) error {
	return hosted.Apply(ctx, h.client, []byte(documents))
}

// object returns an empty object of a kind.
func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// await blocks until an object exists for which the condition holds.
func await(ctx context.Context, c client.Client, o *unstructured.Unstructured, holds func(*unstructured.Unstructured) bool) error {
	err := controlplane.Until(ctx, 10*time.Millisecond, 100*time.Millisecond, patience, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && holds(o), err
	})
	if err != nil {
		return fmt.Errorf("wait for %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// manifest is a Deployment as an object in YAML or JSON has it.
func manifest(d *appsv1.Deployment) (map[string]any, error) {
	d = d.DeepCopy()
	d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	d.Namespace = Namespace
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err == nil {
		delete(o, "status")
	}
	return o, err
}
