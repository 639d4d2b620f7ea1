package hub

import (
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
)

// testOpenAPI installs widgets: the documents have every definition, also one that is installed while the hub runs, and keep the address
// by which a client caches them.
func testOpenAPI(t *testing.T, h *Hub) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(h.Config)
	if err != nil {
		t.Fatal(err)
	}
	if paths, err := client.OpenAPIV3().Paths(); err != nil || paths["apis/test.sluice.dev/v1"] != nil {
		t.Fatalf("before the definition of widgets: %v, %v", paths, err)
	}
	installWidgets(t, h.Config)

	kinds := map[string]string{ // the kind by the path of its document
		"apis/apiextensions.k8s.io/v1": "CustomResourceDefinition",
		"apis/sluice.dev/v1alpha1":     "ServiceOffering",
		"apis/test.sluice.dev/v1":      "Widget",
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for path, kind := range kinds {
		if paths[path] == nil {
			t.Errorf("version 3 has no %s: %v", path, paths)
			continue
		}
		document, err := paths[path].Schema("application/json")
		if err != nil || !strings.Contains(string(document), `"kind":"`+kind+`"`) {
			t.Errorf("the document %s has no %s: %v", path, kind, err)
		}
		if first, second := paths[path].ServerRelativeURL(), again[path].ServerRelativeURL(); first != second {
			t.Errorf("the document %s is %s first and %s then", path, first, second)
		}
	}
	one, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		found := false
		for _, definition := range one.Definitions.AdditionalProperties {
			found = found || strings.HasSuffix(definition.Name, "."+kind)
		}
		if !found {
			t.Errorf("version 2 has no %s", kind)
		}
	}
}
