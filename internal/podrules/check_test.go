package podrules_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/internal/podrules"
	"github.com/sluice-dev/sluice/test/escape"
)

// TestCheck refuses what the member clusters' policies refuse, for the same reasons: the table is that
// of the tests that try to escape on clusters.
func TestCheck(t *testing.T) {
	plain := escape.Row{Name: "plain", Make: func(*corev1.Pod) {}}
	for _, row := range append(escape.Pods(), plain) {
		t.Run(row.Name, func(t *testing.T) {
			pod := escape.Pod("n", "p", "i")
			row.Make(pod)
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
			if err != nil {
				t.Fatal(err)
			}
			refused, err := podrules.Check(object)
			if err != nil || (row.By == "") != (refused == "") || !strings.Contains(refused, row.By) {
				t.Errorf("refused by %q (%v), want %q", refused, err, row.By)
			}
		})
	}
}

// FuzzCheck: a template of any form is checked or cannot be evaluated, and nothing panics.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"spec": {"containers": [{"name": "c", "securityContext": {"privileged": true}}]}}`))
	f.Add([]byte(`{"metadata": null, "spec": {"containers": 1, "volumes": [1]}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		var template map[string]any
		if json.Unmarshal(document, &template) != nil {
			t.Skip()
		}
		_, _ = podrules.Check(template)
	})
}
