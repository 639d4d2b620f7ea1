package workload

import (
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// What is sealed belongs to one parameter of one instance.
func TestSealedParametersStayWithTheirOwner(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	plan := planOf(t, "components: []\nparameters: {a: {writeOnly: true}, b: {writeOnly: true}, c: {type: string}}")
	own := Parameters{Namespace: "n", Name: "x", Keys: keys}
	stored, err := own.Sealed(HiddenParameters(plan), []byte(`{"a": "hunter2", "c": "plain"}`))
	if err != nil || strings.Contains(string(stored), "hunter2") {
		t.Fatalf("%s, %v", stored, err)
	}
	if opened, err := own.Opened(stored); err != nil || string(opened) != `{"a":"hunter2","c":"plain"}` {
		t.Errorf("%s, %v", opened, err)
	}
	if sealed := SealedParameters(stored); len(sealed) != 1 || !keys.Has(sealed[0]) {
		t.Errorf("sealed: %q", sealed)
	}
	if shown := ShownParameters(stored); string(shown) != `{"c":"plain"}` {
		t.Errorf("shown: %s", shown)
	}
	if shown := ShownParameters(stored, "c"); string(shown) != `{}` {
		t.Errorf("shown without what is hidden by now: %s", shown)
	}
	for name, p := range map[string]Parameters{
		"a binding":         BindingParametersOf(&v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}}, keys),
		"another instance":  {Namespace: "n", Name: "y", Keys: keys},
		"another namespace": {Namespace: "m", Name: "x", Keys: keys},
	} {
		if _, err := p.Opened(stored); err == nil {
			t.Errorf("%s opens it", name)
		}
	}
	if opened, err := own.Opened([]byte(strings.Replace(string(stored), `"a":`, `"b":`, 1))); err == nil {
		t.Errorf("another parameter opens it: %s", opened)
	}
	if again, err := own.Sealed(HiddenParameters(plan), []byte(`{"c": "plain", "a": "hunter2"}`), nil, stored); err != nil || string(again) != string(stored) {
		t.Errorf("the same value is sealed anew: %s, %v", again, err)
	}
}

// Expressions of a binding's hooks and credentials read its hidden parameters, and no message repeats them.
func TestHiddenParametersOfABinding(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	b := &v1alpha1.ServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x"}}
	stored, err := BindingParametersOf(b, keys).Sealed([]string{"key"}, []byte(`{"key": "hunter2", "size": 1}`))
	if err != nil || strings.Contains(string(stored), "hunter2") {
		t.Fatalf("%s, %v", stored, err)
	}
	b.Spec.Parameters = &runtime.RawExtension{Raw: stored}
	of := &Order{Plan: planOf(t, "components: []\ncredentials: {key: '${binding.parameters.key}', size: '${binding.parameters.size}'}")}
	o, err := of.For(b, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	if given, err := o.Credentials(nil, nil); err != nil || string(given) != `{"key":"hunter2","size":1}` {
		t.Errorf("credentials are %s, %v", given, err)
	}
	if got := o.Redacted("hunter2 is too short"); got != "*** is too short" {
		t.Error(got)
	}
	if _, err := of.For(b, nil, nil); err == nil {
		t.Error("it is opened without keys")
	}
	b.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`[]`)}
	if _, err := of.For(b, keys, nil); err == nil {
		t.Error("parameters that are no object are taken")
	}
}
