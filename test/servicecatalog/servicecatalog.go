// Package servicecatalog runs the Kubernetes Service Catalog for tests: its own webhooks and controllers, as programs of
// this host, on a control plane of a test. It was archived before Kubernetes 1.22; its definitions and the configuration
// of its webhooks are brought to the versions that are served since.
package servicecatalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/hosted"
	"github.com/sluice-dev/sluice/test/loopback"
)

const namespace = "catalog" // of the release

// Start runs a Service Catalog for the length of a test, and builds it once on a machine. It polls operations every two
// seconds at the latest, instead of every 20 minutes.
func Start(t *testing.T, on *controlplane.ControlPlane) {
	t.Helper()
	if err := install(t.Context(), on, t.TempDir()); err != nil {
		t.Fatalf("start Service Catalog: %v", err)
	}
}

func install(ctx context.Context, on *controlplane.ControlPlane, folder string) error {
	built, err := hosted.Build(ctx, "test/servicecatalog/programs/build.sh")
	if err != nil {
		return err
	}
	c, err := client.New(on.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return err
	}
	rendered, err := hosted.Render(filepath.Join(built, "chart"), "catalog", namespace, nil)
	if err != nil {
		return fmt.Errorf("render its chart: %w", err)
	}
	webhook, err := hosted.NewServer(filepath.Join(folder, "webhook"), loopback.Port())
	if err != nil {
		return err
	}
	if err := define(ctx, c, rendered); err != nil {
		return err
	}
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(kubeconfig, on.Kubeconfig(), 0o600); err != nil {
		return err
	}
	err = on.Run(filepath.Join(built, "webhook"), []string{"KUBECONFIG=" + kubeconfig},
		fmt.Sprintf("--secure-port=%d", webhook.Port), "--cert-dir="+webhook.Folder, "--healthz-server-bind-port=0")
	if err != nil {
		return err
	}
	if err := webhook.Await(ctx); err != nil {
		return fmt.Errorf("the webhook: %w", err)
	}
	for _, o := range rendered {
		if hooked(o) {
			webhook.Redirect(o)
			if err := hosted.ApplyObject(ctx, c, o); err != nil {
				return err
			}
		}
	}
	return on.Run(filepath.Join(built, "controller-manager"), nil,
		"--k8s-kubeconfig="+kubeconfig, "--service-catalog-kubeconfig="+kubeconfig, "--leader-elect=false",
		"--secure-port=0", "--tls-cert-file="+filepath.Join(webhook.Folder, "tls.crt"), "--tls-private-key-file="+filepath.Join(webhook.Folder, "tls.key"),
		"--operation-polling-maximum-backoff-duration=2s", "-v=4")
}

// define installs the definitions, and blocks until they are served: the programs look for them every ten seconds only.
func define(ctx context.Context, c client.Client, rendered []*unstructured.Unstructured) error {
	var definitions []*unstructured.Unstructured
	for _, o := range rendered {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := modernise(o); err != nil {
			return err
		}
		if err := hosted.ApplyObject(ctx, c, o); err != nil {
			return err
		}
		definitions = append(definitions, o)
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		for _, o := range definitions {
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil || !hosted.HasCondition(o, "Established") {
				return false, err
			}
		}
		return true, nil
	})
}

// modernise turns a definition of apiextensions.k8s.io/v1beta1 into one of v1: what was said for all versions is said
// for the only one, with a schema that allows everything, as v1beta1 does without a schema.
func modernise(definition *unstructured.Unstructured) error {
	spec, _, err := unstructured.NestedMap(definition.Object, "spec")
	if err != nil {
		return err
	}
	var columns []any
	if old, found := spec["additionalPrinterColumns"].([]any); found {
		for _, column := range old {
			column := column.(map[string]any)
			columns = append(columns, map[string]any{"name": column["name"], "type": column["type"], "jsonPath": column["JSONPath"]})
		}
	}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetAnnotations(map[string]string{"api-approved.kubernetes.io": "unapproved, archived before that was asked for"})
	definition.Object["spec"] = map[string]any{
		"group": spec["group"], "scope": spec["scope"], "names": spec["names"],
		"versions": []any{map[string]any{
			"name": spec["version"], "served": true, "storage": true,
			"additionalPrinterColumns": columns, "subresources": spec["subresources"],
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}
	return nil
}

// hooked reports whether an object is a configuration of webhooks, and turns it from admissionregistration.k8s.io/v1beta1
// into one of v1, which has no defaults for what the webhooks understand and what they do besides.
func hooked(o *unstructured.Unstructured) bool {
	hooks, found, _ := unstructured.NestedSlice(o.Object, "webhooks")
	if !found {
		return false
	}
	for _, hook := range hooks {
		hook.(map[string]any)["admissionReviewVersions"] = []any{"v1beta1"}
		hook.(map[string]any)["sideEffects"] = "None"
	}
	_ = unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
	o.SetAPIVersion("admissionregistration.k8s.io/v1")
	return true
}
