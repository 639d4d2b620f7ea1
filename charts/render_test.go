package charts_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestRender compares what helm renders with the golden files, to be read as what
// an operator's cluster gets.
func TestRender(t *testing.T) {
	for name, values := range map[string][]string{
		"default": nil,
		"hardened": {"tls.secretName=sluice-tls", "tls.clientCASecretName=sluice-client-ca", "memberClusterSecrets=false", "collect=remove", "replicas=3",
			"addOnCharts.persistentVolumeClaim.claimName=charts", "chartRegistries={registry.example,registry.example:5000}"},
		"monitored": {"monitoring.serviceMonitor.enabled=true", "monitoring.rules.enabled=true", "monitoring.labels.release=prometheus"},
		"single":    {"replicas=1", "service.type=NodePort", "service.nodePort=30080"},
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

// TestRefusedValues lists values that would install something that cannot work; the error
// must name them.
func TestRefusedValues(t *testing.T) {
	for name, row := range map[string]struct{ value, names string }{
		"a registry without a volume for its charts": {"chartRegistries={registry.example}", "addOnCharts"},
		"a value that is misspelt":                   {"memberClusterSecret=false", "memberClusterSecret"},
		"an interval without a unit":                 {"monitoring.serviceMonitor.interval=often", "interval"},
		"a mode that there is not":                   {"collect=everything", "collect"},
		"dashboards that no sidecar finds":           {"monitoring.dashboards.labels=null", "labels"},
		"no Secret with the platforms":               {"platforms.secretName=", "secretName"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := helmTemplate(t, row.value); err == nil || !strings.Contains(err.Error(), row.names) {
				t.Errorf("helm template --set %s: %v, want an error about %s", row.value, err, row.names)
			}
		})
	}
}

// TestDashboards: each dashboard is in a ConfigMap that Grafana's sidecar finds, byte for byte.
func TestDashboards(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("sluice", "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	want := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want["sluice-"+filepath.Base(file)] = string(content)
	}
	got := map[string]string{}
	for document := range strings.SplitSeq(string(render(t, []string{"monitoring.dashboards.enabled=true", "monitoring.dashboards.annotations.grafana_folder=Sluice"})), "---\n") {
		var shipped corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(document), &shipped); err != nil {
			t.Fatal(err)
		}
		if shipped.Kind != "ConfigMap" {
			continue
		}
		if shipped.Labels["grafana_dashboard"] != "1" || shipped.Annotations["grafana_folder"] != "Sluice" {
			t.Errorf("%s has the labels %v and annotations %v", shipped.Name, shipped.Labels, shipped.Annotations)
		}
		maps.Copy(got, shipped.Data)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the chart ships other dashboards than charts/sluice/dashboards (-there +shipped):\n%s", diff)
	}
}

func render(t *testing.T, values []string) []byte {
	t.Helper()
	out, err := helmTemplate(t, values...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// helmTemplate runs the pinned helm.
func helmTemplate(t *testing.T, values ...string) ([]byte, error) {
	t.Helper()
	args := []string{"tool", "-modfile=../tools/go.mod", "helm", "template", "sluice", "sluice", "--namespace", "sluice", "--kube-version", "1.34.4"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("helm template: %w\n%s", err, &problems)
	}
	return out.Bytes(), nil
}
