package catalog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestExamples applies docs/examples and the offerings of charts to one hub: the hub accepts every field, and the
// catalog serves every offering.
func TestExamples(t *testing.T) {
	r := run(t)
	strict := client.WithFieldValidation(r.hub, metav1.FieldValidationStrict)
	var files []string
	for _, folder := range []string{"../docs/examples", "../charts", "../charts/services"} {
		found, err := filepath.Glob(folder + "/*.yaml")
		if err != nil || len(found) == 0 {
			t.Fatalf("there is nothing in %s: %v", folder, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data))
			for {
				o := &unstructured.Unstructured{}
				if err := documents.Decode(o); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					t.Fatal(err)
				}
				o.SetNamespace(r.namespace)
				if err := strict.Create(context.Background(), o); err != nil {
					t.Fatal(err)
				}
				if o.GetKind() == "ServiceOffering" {
					r.judged(o.GetName(), "Ready")
				}
			}
		})
	}
}
