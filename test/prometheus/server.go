package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/sluice-dev/sluice/test/loopback"
)

// Interval between two scrapes, and between two evaluations of the rules.
const Interval = time.Second

// Program returns the path of prometheus or promtool. What is missing is fetched first, see install.sh.
func Program(t testing.TB, name string) string {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("find the folder of this module: %v", err)
	}
	install := exec.CommandContext(t.Context(), filepath.Join(strings.TrimSpace(string(module)), "test", "prometheus", "install.sh"))
	var problems bytes.Buffer
	install.Stderr = &problems
	folder, err := install.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", install.Path, err, &problems)
	}
	return filepath.Join(strings.TrimSpace(string(folder)), name)
}

// Runner runs a program until the test ends, as a control plane of the tests does.
type Runner interface {
	Run(binary string, environment []string, flags ...string) error
}

// Start starts a Prometheus, and returns its API once it has scraped the target, HOST:PORT. Its job is named test.
// rules is a file with recording and alerting rules.
func Start(t testing.TB, by Runner, target, rules string) v1.API {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	// JSON is YAML.
	config, err := json.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": Interval.String(), "scrape_timeout": Interval.String(), "evaluation_interval": Interval.String()},
		"rule_files":     []string{rules},
		"scrape_configs": []any{map[string]any{"job_name": "test", "static_configs": []any{map[string]any{"targets": []string{target}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	address := loopback.Address()
	err = by.Run(Program(t, "prometheus"), nil, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	if err != nil {
		t.Fatal(err)
	}
	client, err := api.NewClient(api.Config{Address: "http://" + address})
	if err != nil {
		t.Fatal(err)
	}
	prometheus := v1.NewAPI(client)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := Query(ctx, prometheus, `up{job="test"} == 1`)
		if err == nil {
			return prometheus
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait until Prometheus has scraped %s: %v", target, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Query returns the present series of an expression. It is an error if there is none with a value that is a number.
func Query(ctx context.Context, prometheus v1.API, expression string) (model.Vector, error) {
	value, warnings, _, err := prometheus.Query(ctx, expression, time.Time{})
	if err != nil {
		return nil, err
	}
	series, ok := value.(model.Vector)
	if !ok || len(warnings) > 0 {
		return nil, fmt.Errorf("the value is a %s, with warnings %q", value.Type(), warnings)
	}
	for _, one := range series {
		if one.Value == one.Value { // is not NaN
			return series, nil
		}
	}
	return nil, fmt.Errorf("no data: %v", series)
}
