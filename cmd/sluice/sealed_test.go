package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// TestSealedInFindsAllFields: each field of the API that holds something sealed is looked at.
func TestSealedInFindsAllFields(t *testing.T) {
	found := 0
	for _, kind := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		o, is := reflect.New(kind).Interface().(client.Object)
		if !is || kind.PkgPath() != apiPackage {
			continue
		}
		var fields []string
		fill(reflect.ValueOf(o).Elem(), kind.Name(), &fields)
		values := sealedIn(o)
		for _, field := range fields {
			found++
			if !slices.ContainsFunc(values, func(value []byte) bool { return string(value) == field }) {
				t.Errorf("%s is not looked at", field)
			}
		}
	}
	if found < 11 {
		t.Errorf("the API has only %d such fields", found)
	}
}

var apiPackage = reflect.TypeFor[v1alpha1.MemberCluster]().PkgPath()

// fill sets all fields of a part of the API that hold something sealed to their paths, and adds these.
func fill(part reflect.Value, path string, fields *[]string) {
	switch of := part.Type(); {
	case of.Kind() == reflect.Pointer && of.Elem().PkgPath() == apiPackage:
		part.Set(reflect.New(of.Elem()))
		fill(part.Elem(), path, fields)
	case of.Kind() == reflect.Slice && of.Elem().PkgPath() == apiPackage:
		part.Set(reflect.MakeSlice(of, 1, 1))
		fill(part.Index(0), path, fields)
	case of.Kind() == reflect.Struct && of.PkgPath() == apiPackage:
		for i := range of.NumField() {
			field := path + "." + of.Field(i).Name
			if strings.HasPrefix(of.Field(i).Name, "Sealed") {
				part.Field(i).SetBytes([]byte(field))
				*fields = append(*fields, field)
				continue
			}
			fill(part.Field(i), field, fields)
		}
	}
}

// TestKeysetThatLacksAKey: a binding and an instance have something that was sealed with another keyset. The backup is
// refused and doctor reports both; with what the hub's keyset has sealed, both are content.
func TestKeysetThatLacksAKey(t *testing.T) {
	h, c, operator, must := operatedHub(t)
	dir, away := filepath.Dir(h.Kubeconfig), t.TempDir()
	path := func(name string) string { return filepath.Join(away, name) }
	keyset := func(path string) *seal.Keyset {
		t.Helper()
		keys, err := seal.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	own, other := keyset(filepath.Join(dir, keysetName)), keyset(path(keysetName))
	if err := os.WriteFile(path("backup.pub"), []byte(mustSluice(t, "hub", "key", path("backup.key"))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeDefaultPlatform(platformsPath(dir)); err != nil {
		t.Fatal(err)
	}
	if out := must("doctor"); !strings.Contains(out, "- keyset       nothing is sealed yet") {
		t.Errorf("of a hub with nothing sealed, doctor says\n%s", out)
	}
	binding := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "sb-1"}}
	ordered := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "sb-2"}}
	password, err := workload.BindingParametersOf(ordered, other).Sealed([]string{"password"}, json.RawMessage(`{"password": "hunter2"}`))
	if err != nil {
		t.Fatal(err)
	}
	ordered.Spec.Parameters = &runtime.RawExtension{Raw: password}
	if values := sealedIn(ordered); own.Has(values[0]) || !other.Has(values[0]) {
		t.Error("hidden parameters of a binding are not looked at")
	}
	instance := deliveredInstance(t, c, h.Namespace, "si-1", "eu")
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	sealWith := func(credentials, parameter *seal.Keyset) {
		t.Helper()
		var err error
		if binding.Status.SealedCredentials, err = credentials.Seal([]byte("credentials"), []byte("binding")); err != nil {
			t.Fatal(err)
		}
		hidden, err := workload.ParametersOf(instance, parameter).Sealed([]string{"password"}, json.RawMessage(`{"password": "hunter2"}`))
		if err != nil {
			t.Fatal(err)
		}
		instance.Spec.Desired.Parameters = &runtime.RawExtension{Raw: hidden}
		if err := c.Status().Update(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		if err := c.Update(t.Context(), instance); err != nil {
			t.Fatal(err)
		}
	}
	sealWith(other, other)
	if _, err := operator("hub", "backup", path("hub.backup"), "--key", path("backup.pub")); err == nil || !strings.Contains(err.Error(), "sealed in instance si-1, binding sb-1: name the hub's keyset with --keyset") {
		t.Errorf("the backup: %v", err)
	}
	if out, err := operator("doctor"); err == nil || !strings.Contains(out, "✘ keyset       "+filepath.Join(dir, keysetName)+" does not open what is sealed in instance si-1, binding sb-1: ") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	must("hub", "backup", path("other.backup"), "--key", path("backup.pub"), "--keyset", path(keysetName))
	sealWith(own, own)
	must("hub", "backup", path("hub.backup"), "--key", path("backup.pub"))
	if out, _ := operator("doctor"); !strings.Contains(out, "✔ keyset       opens what is sealed in 2 resources") {
		t.Errorf("doctor says\n%s", out)
	}
}
