package hub

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/charts"
)

const (
	// arrivalsAtOnce is how many resources are written at the same time.
	arrivalsAtOnce = 8
	// sayEvery is the time between two messages about a step that takes longer.
	sayEvery = 2 * time.Second
)

// arrivals writes the resources of a hub to its new home.
type arrivals struct {
	*Move
	client dynamic.Interface
	kinds  map[schema.GroupKind]arrivalKind
}

// arrivalKind is how the resources of a kind are written.
type arrivalKind struct {
	resource schema.GroupVersionResource
	// hasStatus reports that the status is written apart.
	hasStatus bool
}

func newArrivals(m *Move) (*arrivals, error) {
	definitions, err := readCRDs(charts.CRDs)
	if err != nil {
		return nil, err
	}
	a := &arrivals{Move: m, kinds: map[schema.GroupKind]arrivalKind{}}
	for _, crd := range definitions {
		kind := arrivalKind{resource: storedAs(crd)}
		for _, version := range crd.Spec.Versions {
			if version.Storage {
				kind.hasStatus = version.Subresources != nil && version.Subresources.Status != nil
			}
		}
		a.kinds[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = kind
	}
	a.client, err = dynamic.NewForConfig(m.Cluster)
	return a, err
}

// each does something with all resources, several at the same time.
func (a *arrivals) each(ctx context.Context, p *packed, done string, do func(context.Context, *unstructured.Unstructured) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(arrivalsAtOnce)
	var mu sync.Mutex
	n, said := 0, time.Now()
	err := p.resources(func(source *unstructured.Unstructured) error {
		group.Go(func() error {
			if err := do(ctx, source); err != nil {
				return fmt.Errorf("%s %s: %w", source.GetKind(), source.GetName(), err)
			}
			mu.Lock()
			defer mu.Unlock()
			if n++; time.Since(said) > sayEvery {
				said = time.Now()
				a.Say("%d of %d resources are %s", n, p.Resources, done)
			}
			return nil
		})
		return ctx.Err()
	})
	if failed := group.Wait(); failed != nil {
		return failed
	}
	return err
}

// arrival is a resource as it is to be in the new home.
type arrival struct {
	*unstructured.Unstructured
	// deleting says that it is being deleted, generation is what it has there.
	deleting   bool
	generation int64
}

// arrivalOf returns a resource of the former home as it is to be in the new one: it keeps its UID and its time in
// annotations. Its first generation is 1 there, and the next one that of its deletion.
func arrivalOf(source *unstructured.Unstructured) *arrival {
	to := &arrival{Unstructured: source.DeepCopy(), deleting: source.GetDeletionTimestamp() != nil, generation: 1}
	if to.deleting {
		to.generation = 2
	}
	annotations := maps.Clone(source.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationUID] = string(v1alpha1.UIDOf(source))
	annotations[v1alpha1.AnnotationCreated] = v1alpha1.CreatedOf(source).UTC().Format(time.RFC3339)
	less := source.GetGeneration() - to.generation
	annotations[v1alpha1.AnnotationGenerations] = strconv.FormatInt(v1alpha1.GenerationsBefore(source)+less, 10)
	to.Object["metadata"] = map[string]any{}
	to.SetNamespace(source.GetNamespace())
	to.SetName(source.GetName())
	to.SetAnnotations(annotations)
	to.SetLabels(source.GetLabels())
	to.SetFinalizers(source.GetFinalizers())
	recount(to.Unstructured, less)
	return to
}

const observed = "observedGeneration"

// counted are the fields that hold a generation of the resource, beside those of conditions.
var counted = [][]string{
	{"status", observed},
	{"status", "operation", "generation"},
	{"status", "decision", "generation"},
	{"status", "delivered", "decision", "generation"},
}

// recount makes generations in a status smaller. What was observed before the first generation becomes zero, which is
// none; others keep their order.
func recount(o *unstructured.Unstructured, less int64) {
	for _, path := range counted {
		last := len(path) - 1
		subtract(fieldsOf(o, path[:last]...), path[last], less)
	}
	conditions, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, one := range list {
		condition, _ := one.(map[string]any)
		subtract(condition, observed, less)
	}
}

func subtract(fields map[string]any, name string, less int64) {
	generation, is := fields[name].(int64)
	if !is {
		return
	}
	fields[name] = generation - less
	if name == observed {
		fields[name] = max(generation-less, 0)
	}
}

// sum returns a checksum of what is to be the same in both homes.
func (a *arrival) sum() ([sha256.Size]byte, error) {
	fields := maps.Clone(a.Object)
	if status := fieldsOf(a.Unstructured, "status"); len(status) == 0 {
		delete(fields, "status")
	}
	fields["metadata"] = map[string]any{
		"annotations": a.GetAnnotations(), "labels": a.GetLabels(), "finalizers": a.GetFinalizers(), "deleting": a.deleting, "generation": a.generation,
	}
	encoded, err := json.Marshal(fields)
	return sha256.Sum256(encoded), err
}

// of returns the client for a resource.
func (a *arrivals) of(o *unstructured.Unstructured) (dynamic.ResourceInterface, arrivalKind) {
	kind := a.kinds[o.GroupVersionKind().GroupKind()]
	return a.client.Resource(kind.resource).Namespace(o.GetNamespace()), kind
}

// try checks that the new home accepts a resource.
func (a *arrivals) try(ctx context.Context, source *unstructured.Unstructured) error {
	switch {
	case source.GetNamespace() != a.Namespace:
		return fmt.Errorf("it is in namespace %s, and what is sealed is bound to it: move with --namespace %[1]s", source.GetNamespace())
	case len(source.GetOwnerReferences()) > 0:
		return errors.New("it has owner references, by which a cluster deletes it: remove them")
	}
	resource, _ := a.of(source)
	_, err := resource.Create(ctx, arrivalOf(source).Unstructured, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier try has come that far
	}
	return err
}

// put makes a resource in the new home what it was in the former one, by the writes that are missing.
func (a *arrivals) put(ctx context.Context, source *unstructured.Unstructured) error {
	want := arrivalOf(source)
	resource, kind := a.of(source)
	have, err := resource.Get(ctx, want.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = resource.Create(ctx, want.Unstructured, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	if uid := v1alpha1.UIDOf(have); uid != v1alpha1.UIDOf(want) {
		return fmt.Errorf("there is another one by this name, %s: delete it", uid)
	}
	if want.deleting && have.GetDeletionTimestamp() == nil {
		if err := resource.Delete(ctx, have.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
		if have, err = resource.Get(ctx, want.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
	}
	if status := fieldsOf(want.Unstructured, "status"); kind.hasStatus && !reflect.DeepEqual(fieldsOf(have, "status"), status) && len(status) > 0 {
		have.Object["status"] = status
		if have, err = resource.UpdateStatus(ctx, have, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	// Without its owners, a field that the next apply no longer names would stay.
	if applied := appliedBy(source); len(applied) > 0 && !reflect.DeepEqual(appliedBy(have), applied) {
		have.SetManagedFields(source.GetManagedFields())
		_, err = resource.Update(ctx, have, metav1.UpdateOptions{})
	}
	return err
}

// appliedBy returns the fields that managers have applied, by manager and subresource.
func appliedBy(o *unstructured.Unstructured) map[string]string {
	fields := map[string]string{}
	for _, entry := range o.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationApply && entry.FieldsV1 != nil {
			fields[entry.Manager+"/"+entry.Subresource] = string(entry.FieldsV1.GetRawBytes())
		}
	}
	return fields
}

// verify compares all resources of both homes, by their number and their checksums.
func (a *arrivals) verify(ctx context.Context, p *packed) error {
	a.Say("Comparing both homes")
	there, err := a.pack(ctx, a.Cluster, BackupOptions{})
	if err != nil {
		return err
	}
	defer there.file.Close()
	type key struct{ kind, name string }
	sums := map[key][sha256.Size]byte{}
	if err := p.resources(func(source *unstructured.Unstructured) (err error) {
		sums[key{source.GetKind(), source.GetName()}], err = arrivalOf(source).sum()
		return err
	}); err != nil {
		return err
	}
	if there.Resources != len(sums) {
		return fmt.Errorf("it has %d resources, and the former one %d", there.Resources, len(sums))
	}
	return there.resources(func(have *unstructured.Unstructured) error {
		is, err := (&arrival{have, have.GetDeletionTimestamp() != nil, have.GetGeneration()}).sum()
		if want, known := sums[key{have.GetKind(), have.GetName()}]; err == nil && (!known || is != want) {
			err = fmt.Errorf("%s %s is not what it was", have.GetKind(), have.GetName())
		}
		return err
	})
}
