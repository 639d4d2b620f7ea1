package capi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/test/controlplane"
)

var group = schema.GroupVersion{Group: "simulated.test", Version: "v1alpha1"}

const (
	finalizer    = "simulated.test/provider"
	labelCluster = "cluster.x-k8s.io/cluster-name"
	again        = 200 * time.Millisecond
)

// provider makes what Cluster API asks a provider for (its contract v1beta2).
type provider struct {
	client client.Client
	config *rest.Config

	// one makes the control plane that all clusters share; nil where each has its own.
	one func() (*controlplane.ControlPlane, error)

	cancel  context.CancelFunc
	running sync.WaitGroup
	ended   error // of the controllers

	mu        sync.Mutex
	workloads map[client.ObjectKey]*controlplane.ControlPlane
}

func newProvider(c client.Client, config *rest.Config, shared bool) *provider {
	p := &provider{client: c, config: config, workloads: map[client.ObjectKey]*controlplane.ControlPlane{}, cancel: func() {}}
	if shared {
		p.one = sync.OnceValues(func() (*controlplane.ControlPlane, error) {
			return controlplane.New(context.Background(), controlplane.Options{Name: "shared"})
		})
	}
	return p
}

func (p *provider) workload(key client.ObjectKey) *controlplane.ControlPlane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workloads[key]
}

func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.workloads)
}

// start defines the provider's kinds and runs its controllers until stop.
func (p *provider) start(ctx context.Context) error {
	kinds := map[string]func(context.Context, *unstructured.Unstructured) (again time.Duration, err error){
		"SimulatedCluster":      p.infrastructure,
		"SimulatedControlPlane": p.controlPlane,
		"SimulatedConfig":       p.bootstrap,
		"SimulatedMachine":      p.machine,
	}
	for kind := range kinds {
		for _, name := range []string{kind, kind + "Template"} {
			if err := p.client.Create(ctx, definition(name)); err != nil {
				return fmt.Errorf("define %s: %w", name, err)
			}
		}
	}
	mgr, err := ctrl.NewManager(p.config, ctrl.Options{
		Scheme: runtime.NewScheme(), Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 16},
	})
	if err != nil {
		return err
	}
	for kind, look := range kinds {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(group.WithKind(kind))
		err := ctrl.NewControllerManagedBy(mgr).Named(strings.ToLower(kind)).For(o).Complete(
			reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
				o := o.DeepCopy()
				if err := p.client.Get(ctx, r.NamespacedName, o); err != nil {
					return ctrl.Result{}, client.IgnoreNotFound(err)
				}
				after, err := look(ctx, o)
				if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
					return ctrl.Result{RequeueAfter: again}, nil
				}
				return ctrl.Result{RequeueAfter: after}, err
			}))
		if err != nil {
			return err
		}
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.running.Go(func() { p.ended = mgr.Start(ctx) })
	return nil
}

// stop ends the controllers and all clusters.
func (p *provider) stop() error {
	p.cancel()
	p.running.Wait()
	errs := []error{p.ended}
	if p.one != nil {
		if cp, err := p.one(); err == nil {
			errs = append(errs, cp.Stop())
		}
		return errors.Join(errs...)
	}
	for key, cp := range p.workloads {
		if err := cp.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("stop workload cluster %s: %w", key, err))
		}
	}
	return errors.Join(errs...)
}

// definition of a kind of which nothing is checked.
func definition(kind string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{
			"group": group.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
			"versions": []any{map[string]any{
				"name": group.Version, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	o.SetName(plural + "." + group.Group)
	o.SetLabels(map[string]string{"cluster.x-k8s.io/v1beta2": group.Version}) // the contract that it follows
	return o
}

func clusterOf(o *unstructured.Unstructured) client.ObjectKey {
	return client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[labelCluster]}
}

// hold adds the finalizer, and reports whether the object is there to stay.
func (p *provider) hold(ctx context.Context, o *unstructured.Unstructured) (stays bool, err error) {
	if o.GetDeletionTimestamp() != nil {
		return false, nil
	}
	if controllerutil.AddFinalizer(o, finalizer) {
		return true, p.client.Update(ctx, o)
	}
	return true, nil
}

func (p *provider) release(ctx context.Context, o *unstructured.Unstructured) error {
	if !controllerutil.RemoveFinalizer(o, finalizer) {
		return nil
	}
	return p.client.Update(ctx, o)
}

func (p *provider) report(ctx context.Context, o *unstructured.Unstructured, status map[string]any) error {
	before, _, _ := unstructured.NestedMap(o.Object, "status")
	if fmt.Sprint(before) == fmt.Sprint(status) {
		return nil
	}
	o.Object["status"] = status
	return p.client.Status().Update(ctx, o)
}

// infrastructure is provisioned once the control plane answers, so that Cluster API does not dial before.
func (p *provider) infrastructure(ctx context.Context, o *unstructured.Unstructured) (time.Duration, error) {
	if o.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	if p.workload(clusterOf(o)) == nil {
		return again, nil
	}
	return 0, p.report(ctx, o, map[string]any{"initialization": map[string]any{"provisioned": true}})
}

// controlPlane is a process tree; its version is what is asked for, whatever runs.
func (p *provider) controlPlane(ctx context.Context, o *unstructured.Unstructured) (time.Duration, error) {
	key := clusterOf(o)
	stays, err := p.hold(ctx, o)
	if err != nil {
		return 0, err
	}
	if !stays {
		return 0, p.endControlPlane(ctx, o, key)
	}
	cp := p.workload(key)
	if cp == nil {
		if p.one != nil {
			cp, err = p.one()
		} else {
			cp, err = controlplane.New(ctx, controlplane.Options{Name: key.Name})
		}
		if err != nil {
			return 0, err
		}
		p.mu.Lock()
		p.workloads[key] = cp
		p.mu.Unlock()
	}
	if err := p.writeKubeconfig(ctx, key, cp.Kubeconfig()); err != nil {
		return 0, err
	}
	server, err := url.Parse(cp.Config().Host)
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseInt(server.Port(), 10, 32)
	if err != nil {
		return 0, err
	}
	if host, _, _ := unstructured.NestedString(o.Object, "spec", "controlPlaneEndpoint", "host"); host == "" {
		endpoint := map[string]any{"host": server.Hostname(), "port": port}
		if err := unstructured.SetNestedMap(o.Object, endpoint, "spec", "controlPlaneEndpoint"); err != nil {
			return 0, err
		}
		if err := p.client.Update(ctx, o); err != nil {
			return 0, err
		}
	}
	version, _, _ := unstructured.NestedString(o.Object, "spec", "version")
	available := map[string]any{
		"type": "Available", "status": "True", "reason": "Available", "message": "",
		"lastTransitionTime": o.GetCreationTimestamp().UTC().Format(time.RFC3339),
	}
	return 0, p.report(ctx, o, map[string]any{
		"initialization": map[string]any{"controlPlaneInitialized": true},
		"version":        version, "conditions": []any{available},
	})
}

func (p *provider) endControlPlane(ctx context.Context, o *unstructured.Unstructured, key client.ObjectKey) error {
	p.mu.Lock()
	cp := p.workloads[key]
	delete(p.workloads, key)
	p.mu.Unlock()
	if cp != nil && p.one == nil {
		if err := cp.Stop(); err != nil {
			return err
		}
	}
	if err := p.client.Delete(ctx, kubeconfigOf(key, nil)); client.IgnoreNotFound(err) != nil {
		return err
	}
	return p.release(ctx, o)
}

func kubeconfigOf(key client.ObjectKey, kubeconfig []byte) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret", "stringData": map[string]any{"value": string(kubeconfig)},
	}}
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name + "-kubeconfig")
	o.SetLabels(map[string]string{labelCluster: key.Name})
	return o
}

func (p *provider) writeKubeconfig(ctx context.Context, key client.ObjectKey, kubeconfig []byte) error {
	err := p.client.Create(ctx, kubeconfigOf(key, kubeconfig))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// bootstrap has no data to speak of.
func (p *provider) bootstrap(ctx context.Context, o *unstructured.Unstructured) (time.Duration, error) {
	if o.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	data := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret"}}
	data.SetNamespace(o.GetNamespace())
	data.SetName(o.GetName())
	data.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(o, o.GroupVersionKind())})
	if err := p.client.Create(ctx, data); err != nil && !apierrors.IsAlreadyExists(err) {
		return 0, err
	}
	return 0, p.report(ctx, o, map[string]any{"dataSecretName": data.GetName(), "initialization": map[string]any{"dataSecretCreated": true}})
}

// machine is a node.
func (p *provider) machine(ctx context.Context, o *unstructured.Unstructured) (time.Duration, error) {
	cp := p.workload(clusterOf(o))
	stays, err := p.hold(ctx, o)
	if err != nil {
		return 0, err
	}
	if !stays {
		if cp != nil {
			if err := cp.RemoveNode(ctx, o.GetName()); err != nil {
				return 0, err
			}
		}
		return 0, p.release(ctx, o)
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	text := func(name string) string { s, _ := spec[name].(string); return s }
	if why := text("fails"); why != "" {
		return 0, p.report(ctx, o, map[string]any{"conditions": []any{map[string]any{
			"type": "Ready", "status": "False", "reason": "Failed", "message": why,
			"lastTransitionTime": o.GetCreationTimestamp().UTC().Format(time.RFC3339),
		}}})
	}
	if cp == nil {
		return again, nil
	}
	if text("providerID") == "" {
		providerID := "simulated:///" + o.GetName()
		version := p.versionOf(ctx, o)
		if version == "" {
			return again, nil
		}
		node := controlplane.Node{Name: o.GetName(), CPU: text("cpu"), Memory: text("memory"), ProviderID: providerID, Version: version}
		if err := cp.AddNode(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
			return 0, err
		}
		if err := unstructured.SetNestedField(o.Object, providerID, "spec", "providerID"); err != nil {
			return 0, err
		}
		if err := p.client.Update(ctx, o); err != nil {
			return 0, err
		}
	}
	return 0, p.report(ctx, o, map[string]any{"initialization": map[string]any{"provisioned": true}})
}

// versionOf returns the kubelet version that the Machine of an infrastructure asks for.
func (p *provider) versionOf(ctx context.Context, o *unstructured.Unstructured) string {
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.Kind != "Machine" {
		return "" // not yet
	}
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
	if p.client.Get(ctx, types.NamespacedName{Namespace: o.GetNamespace(), Name: owner.Name}, machine) != nil {
		return ""
	}
	version, _, _ := unstructured.NestedString(machine.Object, "spec", "version")
	return version
}
