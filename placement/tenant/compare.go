package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// ErrChanged is in the errors of objects that are there and differ.
var ErrChanged = errors.New("was changed")

// Compare reads the live object of an apply configuration and returns an error
// that names the first field of it that the live object does not have.
func (t *Tenant) Compare(ctx context.Context, want Object) error {
	return CompareOn(ctx, t.Connection.Client, want)
}

// CompareOn is Compare with another client.
func CompareOn(ctx context.Context, c client.Reader, want Object) error {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(schema.FromAPIVersionAndKind(*want.GetAPIVersion(), *want.GetKind()))
	key := client.ObjectKey{Name: *want.GetName()}
	if namespace := want.GetNamespace(); namespace != nil {
		key.Namespace = *namespace
	}
	if err := c.Get(ctx, key, live); err != nil {
		return fmt.Errorf("read %s %s: %w", live.GetKind(), key.Name, err)
	}
	fields, err := fieldsOf(want)
	if err != nil {
		return fmt.Errorf("render %s %s: %w", live.GetKind(), key.Name, err)
	}
	if difference := missing(fields, live.Object, ""); difference != "" {
		return fmt.Errorf("%s %s %w: %s", live.GetKind(), key.Name, ErrChanged, difference)
	}
	return nil
}

// LiveAsWanted is Compare for objects that the API server writes in another form, or that others
// add to, for instance webhooks that set defaults. It asks the API server what an apply would
// change, except in metadata and status, and returns the live object.
func (t *Tenant) LiveAsWanted(ctx context.Context, want *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live, would := &unstructured.Unstructured{}, want.DeepCopy()
	live.SetGroupVersionKind(would.GroupVersionKind())
	if err := t.Connection.Client.Get(ctx, client.ObjectKeyFromObject(would), live); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", live.GetKind(), would.GetName(), err)
	}
	err := t.Connection.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(would),
		client.DryRunAll, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	if err != nil {
		return nil, fmt.Errorf("compare %s %s: %w", live.GetKind(), live.GetName(), err)
	}
	delete(would.Object, "metadata")
	delete(would.Object, "status")
	if difference := missing(would.Object, live.Object, ""); difference != "" {
		if live.GetKind() == "Secret" {
			difference = "its content" // which no message may show
		}
		return nil, fmt.Errorf("%s %s %w: %s", live.GetKind(), live.GetName(), ErrChanged, difference)
	}
	return live, nil
}

func fieldsOf(o Object) (map[string]any, error) {
	if g, ok := o.(*generic); ok {
		return g.Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(o)
}

// missing returns the first field of want, in the order of their names, that have lacks or that
// differs; empty if have contains all of want. Objects may contain more than is wanted, lists
// may not.
func missing(want, have any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		if !ok && len(want) > 0 {
			return path + " is absent"
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if difference := missing(want[name], fields[name], path+"."+name); difference != "" {
				return difference
			}
		}
	case []any:
		items, _ := have.([]any)
		if len(items) != len(want) {
			return fmt.Sprintf("%s has %d items, not %d", path, len(items), len(want))
		}
		for i := range want {
			if difference := missing(want[i], items[i], fmt.Sprintf("%s[%d]", path, i)); difference != "" {
				return difference
			}
		}
	default:
		if !reflect.DeepEqual(want, have) {
			return fmt.Sprintf("%s is %v, not %v", path, have, want)
		}
	}
	return ""
}
