package charts_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestRender compares what helm renders with the golden files, to be read as what
// an operator's cluster gets.
func TestRender(t *testing.T) {
	for name, values := range map[string][]string{
		"default": nil,
		"hardened": {"tls.secretName=sluice-tls", "tls.clientCASecretName=sluice-client-ca", "memberClusterSecrets=true", "collect=remove", "replicas=3",
			"addOnCharts.persistentVolumeClaim.claimName=charts", "chartRegistries={registry.example,registry.example:5000}"},
		"single": {"replicas=1", "service.type=NodePort", "service.nodePort=30080"},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, values)
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("rendered chart differs from %s (-golden +rendered); `make golden` rewrites it:\n%s", golden, diff)
			}
		})
	}
}

// render runs the pinned helm.
func render(t *testing.T, values []string) []byte {
	t.Helper()
	args := []string{"tool", "-modfile=../tools/go.mod", "helm", "template", "sluice", "sluice", "--namespace", "sluice", "--kube-version", "1.34.4"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		t.Fatalf("helm template: %v\n%s", err, &problems)
	}
	return out.Bytes()
}
