// Package stored keeps resources as each version of Sluice has stored them, and checks that this version reads them. In
// testdata is a folder for each version, with a resource of each kind in which every field is set. That of the version
// of the Helm chart follows the types (make golden); those of released versions never change.
package stored

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/charts"
)

var update = flag.Bool("update", false, "write the resources of this version")

// TestEveryVersionIsRead: each stored resource is decoded without a field that this version does not know, and has all of
// its fields when it is stored again. Its definition drops none of them.
func TestEveryVersionIsRead(t *testing.T) {
	kinds, definitions := kinds(t), definitions(t)
	paths, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(paths) < len(kinds) {
		t.Fatalf("%d stored resources, %v", len(paths), err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		kind := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if kinds[kind] == nil {
			t.Errorf("%s: there is no kind %s any more", path, kind)
			continue
		}
		object := reflect.New(kinds[kind]).Interface()
		if err := yaml.UnmarshalStrict(content, object); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := yaml.Marshal(object)
		if err != nil || !reflect.DeepEqual(decoded(t, again), decoded(t, content)) {
			t.Errorf("%s: stored again it is another one, %v:\n%s", path, err, again)
		}
		kept := decoded(t, content)
		pruning.Prune(kept, definitions[kind], true)
		if !reflect.DeepEqual(kept, decoded(t, content)) {
			t.Errorf("%s: the definition drops a part of it", path)
		}
	}
}

// TestThisVersionIsKept: there is a resource of each kind with every field that the types have now.
func TestThisVersionIsKept(t *testing.T) {
	dir := filepath.Join("testdata", version(t))
	kinds := kinds(t)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		want, err := yaml.Marshal(filled(kinds[kind]))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, kind+".yaml")
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not as the types are now (%v): run `make golden`, and read the difference: what a released version has stored must still be read", path, err)
		}
	}
}

// version is the version of the Helm chart, without its end: the next one that is released.
func version(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "charts", "sluice", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ Version string }
	if err := yaml.Unmarshal(content, &chart); err != nil || chart.Version == "" {
		t.Fatalf("Chart.yaml has version %q, %v", chart.Version, err)
	}
	return chart.Version
}

// kinds are the types of all kinds.
func kinds(t *testing.T) map[string]reflect.Type {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	found := map[string]reflect.Type{}
	for kind, of := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		_, isObject := reflect.New(of).Interface().(client.Object)
		if isObject && of.PkgPath() == reflect.TypeFor[v1alpha1.ServiceInstance]().PkgPath() {
			found[kind] = of
		}
	}
	if len(found) < 10 {
		t.Fatalf("only %d kinds", len(found))
	}
	return found
}

// definitions are the schemas of all kinds, as the API server prunes by them.
func definitions(t *testing.T) map[string]*schema.Structural {
	t.Helper()
	found := map[string]*schema.Structural{}
	err := fs.WalkDir(charts.CRDs, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := fs.ReadFile(charts.CRDs, path)
		if err != nil {
			return err
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			return err
		}
		var internal apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil); err != nil {
			return err
		}
		structural, err := schema.NewStructural(&internal)
		found[crd.Spec.Names.Kind] = structural
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func decoded(t *testing.T, content []byte) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal(content, &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// filled returns a resource with a value in every field. Values say where they are; they need not be valid.
func filled(of reflect.Type) any {
	object := reflect.New(of)
	fill(object.Elem(), of.Name(), nil)
	o := object.Interface().(client.Object)
	o.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(of.Name()))
	return o
}

// at is the time in all fields.
var at = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// fill sets a value and everything below it. A type within itself, as in JSON Schema, is left out.
func fill(v reflect.Value, name string, within []reflect.Type) {
	switch o := v.Addr().Interface().(type) {
	case *metav1.TypeMeta:
		return
	case *metav1.ObjectMeta:
		*o = metav1.ObjectMeta{Namespace: "sluice", Name: "name", UID: "uid", Generation: 1, CreationTimestamp: metav1.NewTime(at), Labels: map[string]string{"label": "value"}, Annotations: map[string]string{"annotation": "value"}, Finalizers: []string{v1alpha1.Finalizer}}
		return
	case *metav1.Time:
		*o = metav1.NewTime(at)
		return
	case *metav1.MicroTime:
		*o = metav1.NewMicroTime(at)
		return
	case *metav1.Duration:
		o.Duration = time.Minute
		return
	case *resource.Quantity:
		*o = resource.MustParse("1")
		return
	case *intstr.IntOrString:
		*o = intstr.FromInt32(1)
		return
	case *runtime.RawExtension:
		o.Raw = []byte(fmt.Sprintf(`{"field":%q}`, name))
		return
	case *apiextensionsv1.JSON:
		o.Raw = []byte(fmt.Sprintf(`{"field":%q}`, name))
		return
	case *json.RawMessage:
		*o = []byte(fmt.Sprintf(`{"field":%q}`, name))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if slices.Contains(within, v.Type()) {
			return
		}
		within = append(slices.Clip(within), v.Type())
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				fill(v.Field(i), field.Name, within)
			}
		}
	case reflect.Pointer:
		if slices.Contains(within, v.Type().Elem()) {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, within)
	case reflect.Slice:
		if slices.Contains(within, v.Type().Elem()) {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, within)
	case reflect.Map:
		if slices.Contains(within, v.Type().Elem()) {
			return
		}
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, "key", within)
		fill(value, name, within)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Interface:
		v.Set(reflect.ValueOf(name))
	}
}
