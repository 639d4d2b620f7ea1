package charts_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sluice-dev/sluice/test/prometheus"
)

// TestAlerts: promtool finds nothing wrong with the alerts, and they fire when their faults are there
// (sluice/rules/alerts_test.yaml).
func TestAlerts(t *testing.T) {
	tool := prometheus.Program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.CommandContext(t.Context(), tool, args...)
		command.Dir = filepath.Join("sluice", "rules")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
