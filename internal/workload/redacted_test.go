package workload

import (
	"encoding/json"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// What a cluster says is shown without secrets and hidden parameters, and without anything of one that contains another.
func TestWhatAClusterSaysIsRedacted(t *testing.T) {
	o := &Order{Plan: &v1alpha1.WorkloadPlan{}, Secrets: Secrets{"short": seal.Redact([]byte("hush")), "long": seal.Redact([]byte("hush-hush"))}, hidden: []string{"own"}}
	if got := o.Redacted("args [hush-hush hush own] are immutable"); got != "args [*** *** ***] are immutable" {
		t.Error(got)
	}
	if got := (*Order)(nil).Redacted("hush"); got != "hush" {
		t.Error(got)
	}
}

// Of hidden parameters, a message shows no texts and no longer numbers. Short numbers are parts of too many messages.
func TestHiddenNumbersAreRedacted(t *testing.T) {
	keys, err := seal.Open(filepath.Join(t.TempDir(), "keyset.json"))
	if err != nil {
		t.Fatal(err)
	}
	p := ParametersOf(&v1alpha1.ServiceInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "sluice", Name: "si-1"}}, keys)
	sealed, err := p.Sealed([]string{"pin"}, json.RawMessage(`{"pin": {"code": 4711, "card": 9007199254740993, "tries": 3, "rate": 0.25}, "size": 1000}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Redacted("pin 4711 of 9007199254740993 at 0.25 is wrong after 3 of 1000", sealed); got != "pin *** of *** at *** is wrong after 3 of 1000" {
		t.Error(got)
	}
	plan := &v1alpha1.WorkloadPlan{Parameters: map[string]v1alpha1.ParameterSchema{
		"pin": {RawExtension: runtime.RawExtension{Raw: []byte(`{"type": "integer", "writeOnly": true}`)}},
	}}
	if got := hiddenTexts(plan, map[string]any{"pin": int64(4711)}); len(got) != 1 || got[0] != "4711" {
		t.Errorf("hidden are %q", got)
	}
}
