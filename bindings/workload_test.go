package bindings

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Secrets that cannot be unsealed, for instance with another keyset, are an error. They are not taken for absent: a binding
// would get new ones, which nothing that runs knows.
func TestSecretsThatCannotBeUnsealed(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	c, garbled := &Controller{Keys: keys}, []byte("sealed with other keys")
	for name, garble := range map[string]func(*v1alpha1.ServiceInstance, *v1alpha1.ServiceBinding){
		"the instance's": func(i *v1alpha1.ServiceInstance, _ *v1alpha1.ServiceBinding) { i.Status.SealedSecrets = garbled },
		"the binding's":  func(_ *v1alpha1.ServiceInstance, b *v1alpha1.ServiceBinding) { b.Status.SealedSecrets = garbled },
	} {
		instance, b := running(false, components...), &v1alpha1.ServiceBinding{}
		garble(instance, b)
		if _, err := c.order(b, instance); err == nil || !strings.Contains(err.Error(), "unseal the workload's secrets") {
			t.Errorf("%s: %v", name, err)
		}
	}

	instance, b := running(false, components...), &v1alpha1.ServiceBinding{}
	instance.Status.Delivered.Decision.Workload.Bindings = &v1alpha1.WorkloadBindings{Secrets: []v1alpha1.WorkloadSecret{{Name: "password"}}}
	if changed, err := c.secureBinding(b, instance); err != nil || !changed || len(b.Status.SealedSecrets) == 0 {
		t.Fatalf("the first time: changed %t, %v", changed, err)
	}
	if changed, err := c.secureBinding(b, instance); err != nil || changed {
		t.Errorf("the second time: changed %t, %v", changed, err)
	}
	b.Status.SealedSecrets = garbled
	if changed, err := c.secureBinding(b, instance); err == nil || changed {
		t.Errorf("secrets that cannot be unsealed: changed %t, %v", changed, err)
	}
}

// The credentials of a workload's plan show the binding's account, if it has one; without such a description they are the
// account's.
func TestTheAccountInAWorkloadsCredentials(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	account := Credentials{{Cluster: "a", Name: "a", Server: "https://a.example", Namespace: "n", Token: seal.Redact([]byte("token"))}}
	for described, want := range map[string]string{
		`{"server": "${kubernetes.server}", "token": "${kubernetes.token}"}`: `{"server":"https://a.example","token":"token"}`, "": `"server":"https://a.example"`,
	} {
		i := running(false, components...)
		if described != "" {
			i.Status.Delivered.Decision.Workload.Credentials = &runtime.RawExtension{Raw: []byte(described)}
		}
		got, err := (&Controller{Keys: keys}).revealWorkload(t.Context(), bindingOf("", nil), i, account, findings{})
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%q: %s, %v", described, got, err)
		}
	}
}
