package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

func readInput(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(file)
}

// decodeDocuments reads a stream of YAML or JSON documents of one kind, with Go type T, and
// refuses other kinds, unknown fields, and a stream without documents. The result holds only
// the fields in the documents, so that the hub's defaults apply to the others.
func decodeDocuments[T any](data []byte, kind string) (objects []*unstructured.Unstructured, err error) {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF) && len(objects) == 0:
			return nil, fmt.Errorf("no %s in it", kind)
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		}
		object := &unstructured.Unstructured{}
		err = yaml.Unmarshal(document, &object.Object)
		if err == nil && len(object.Object) == 0 {
			continue // nothing, or comments only
		}
		// The kind first: each field of another one is unknown.
		if want := v1alpha1.GroupVersion.WithKind(kind); err == nil && object.GroupVersionKind() != want {
			return nil, inDocument(len(objects), fmt.Errorf("kind %q in apiVersion %q: want kind %q in apiVersion %q",
				object.GetKind(), object.GetAPIVersion(), want.Kind, want.GroupVersion()))
		}
		if strict := strictjson.DecodeYAML(document, new(T)); strict != nil {
			err = strict // it names the line
		}
		if err != nil {
			return nil, inDocument(len(objects), err)
		}
		objects = append(objects, object)
	}
}

// inDocument adds the number of the document to an error, except for the first one; lines
// count from the document's beginning.
func inDocument(before int, err error) error {
	if before == 0 {
		return err
	}
	return fmt.Errorf("document %d: %w", before+1, err)
}

// applyDocument writes a document to the hub, waits until the controller has judged it, and
// reads it into object. problem is the controller's reason against it, or "".
func applyDocument(ctx context.Context, c client.Client, document *unstructured.Unstructured, object client.Object, conditions func() []metav1.Condition) (problem string, err error) {
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(document), client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return "", fmt.Errorf("apply it: %w", err)
	}
	generation := document.GetGeneration()
	var ready *conditionView
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(document), object); err != nil {
			return false, err
		}
		ready = viewCondition(conditions(), v1alpha1.ConditionReady)
		return ready != nil && ready.generation >= generation, nil
	})
	switch {
	case wait.Interrupted(err):
		return "", errors.New("it is stored, but no controller has read it within 30 s: is `sluice serve` running?")
	case err != nil:
		return "", fmt.Errorf("wait until a controller has read it: %w", err)
	case !ready.isTrue:
		return ready.message, nil
	}
	return "", nil
}
