// Package crdtest defines resources on clusters of tests.
package crdtest

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Define creates definitions of resources, unless they are there, and returns once clients find all of their kinds, which
// is a moment after a definition is established. The client's scheme must know CustomResourceDefinitions.
func Define(ctx context.Context, c client.Client, definitions ...*apiextensionsv1.CustomResourceDefinition) error {
	for _, definition := range definitions {
		if err := client.IgnoreAlreadyExists(c.Create(ctx, definition)); err != nil {
			return fmt.Errorf("create the definition %s: %w", definition.Name, err)
		}
	}
	for _, definition := range definitions {
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			return isServed(ctx, c, definition)
		})
		if err != nil {
			return fmt.Errorf("wait until the definition %s is served: %w", definition.Name, err)
		}
	}
	return nil
}

// isServed reports whether a definition is established and clients find its kind.
func isServed(ctx context.Context, c client.Client, definition *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	if err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
		return false, err
	}
	established := false
	for _, condition := range definition.Status.Conditions {
		established = established || condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
	}
	if !established {
		return false, nil
	}
	kind := schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}
	for _, version := range definition.Spec.Versions {
		if !version.Served {
			continue
		}
		if _, err := c.RESTMapper().RESTMapping(kind, version.Name); err != nil {
			return false, nil // the mapper asks the server again the next time
		}
	}
	return true, nil
}
