package hub

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var widgetResource = schema.GroupVersionResource{Group: "test.sluice.dev", Version: "v1", Resource: "widgets"}

const widgetNamespace = "sluice"

// installWidgets gives the hub a resource with the features under test.
func installWidgets(t testing.TB, config *rest.Config) {
	t.Helper()
	crds, err := readCRDs(os.DirFS("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	if err := applyCRDs(t.Context(), config, crds); err != nil {
		t.Fatal(err)
	}
	if err := backdateEstablished(t.Context(), config, crds); err != nil {
		t.Fatal(err)
	}
	if err := awaitServed(t.Context(), config, crds); err != nil {
		t.Fatal(err)
	}
}

// widgets is a client for widgets.
func widgets(t testing.TB, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(widgetResource).Namespace(widgetNamespace)
}

func widget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.sluice.dev/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"size": size},
	}}
}
