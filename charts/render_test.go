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
	for name, row := range map[string]struct {
		chart  string
		values []string
	}{
		"default": {"sluice", nil},
		"hardened": {"sluice", []string{"tls.secretName=sluice-tls", "tls.clientCASecretName=sluice-client-ca", "memberClusterSecrets=false", "collect=remove", "replicas=3",
			"addOnCharts.persistentVolumeClaim.claimName=charts", "chartRegistries={registry.example,registry.example:5000}"}},
		"monitored":         {"sluice", []string{"monitoring.serviceMonitor.enabled=true", "monitoring.rules.enabled=true", "monitoring.labels.release=prometheus"}},
		"single":            {"sluice", []string{"replicas=1", "collect=false", "service.type=NodePort", "service.nodePort=30080"}},
		"claims":            {"claims", []string{aBroker}},
		"claims-replicas":   {"claims", []string{aBroker, "replicas=2"}},
		"claims-namespaces": {"claims", []string{aBroker, "broker.name=public", "broker.caSecretName=broker-ca", "namespaces={shop,blog}"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := render(t, row.chart, row.values)
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

// aBroker is the value that the chart of claims needs.
const aBroker = "broker.url=https://broker.example"

// TestRefusedValues lists values that would install something that cannot work; the error
// must name them.
func TestRefusedValues(t *testing.T) {
	for name, row := range map[string]struct{ chart, value, names string }{
		"a registry without a volume for its charts": {"sluice", "chartRegistries={registry.example}", "addOnCharts"},
		"a value that is misspelt":                   {"sluice", "memberClusterSecret=false", "memberClusterSecret"},
		"an interval without a unit":                 {"sluice", "monitoring.serviceMonitor.interval=often", "interval"},
		"a mode that there is not":                   {"sluice", "collect=everything", "collect"},
		"dashboards that no sidecar finds":           {"sluice", "monitoring.dashboards.labels=null", "labels"},
		"no Secret with the platforms":               {"sluice", "platforms.secretName=", "secretName"},
		"no broker for claims":                       {"claims", "overlap=2h", "url"},
		"an overlap without a unit":                  {"claims", aBroker + ",overlap=2", "overlap"},
		"no controller for claims":                   {"claims", aBroker + ",replicas=0", "replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := helmTemplate(t, row.chart, row.value); err == nil || !strings.Contains(err.Error(), row.names) {
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
	for document := range strings.SplitSeq(string(render(t, "sluice", []string{"monitoring.dashboards.enabled=true", "monitoring.dashboards.annotations.grafana_folder=Sluice"})), "---\n") {
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

func render(t *testing.T, chart string, values []string) []byte {
	t.Helper()
	out, err := helmTemplate(t, chart, values...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// helmTemplate runs the pinned helm.
func helmTemplate(t *testing.T, chart string, values ...string) ([]byte, error) {
	t.Helper()
	args := []string{"tool", "-modfile=../tools/go.mod", "helm", "template", chart, chart, "--namespace", "sluice", "--kube-version", "1.34.4"}
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
