package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/sluice-dev/sluice/test/controlplane"
	"github.com/sluice-dev/sluice/test/loopback"
	"github.com/sluice-dev/sluice/test/prometheus"
)

// TestSeen: while a story is played, a real Prometheus scrapes Sluice, and in the end each expression of the chart's
// dashboards and alerts has data. Alerts are silent before their faults are there, and notice them then.
func TestSeen(t *testing.T) {
	t.Parallel()
	target := loopback.Address()
	member := controlplane.Start(t, controlplane.Options{Name: "member", Nodes: []controlplane.Node{{Name: "node", CPU: "4", Memory: "8Gi", Pods: "50"}}})
	backups := t.TempDir()
	mustSluice(t, "hub", "key", filepath.Join(backups, "backup.key"))
	s := &seen{served: serveAnother(t, "sluice", "--metrics-listen", target, "--collect", "report", "--collect-every", "1s",
		"--backup-every", "1h", "--backup-dir", backups, "--backup-key", filepath.Join(backups, "backup.key")), member: member}
	chart := filepath.Join("..", "..", "charts", "sluice")
	s.prometheus = prometheus.Start(t, member, target, filepath.Join(chart, "rules", "alerts.yaml"))

	s.plays(t)
	s.notices(t)
	s.breaks(t)
	// Waiting for a quarter of an hour and filling a database take too long here; charts/sluice/rules/alerts_test.yaml has both.
	s.notices(t, "SluiceClusterNotReady", "SluiceCredentialsExpired", "SluiceInstancesNotReady", "SluiceOperationsFail", "SluicePeeringNotReady")

	for _, rule := range s.alerts(t) {
		value := threshold.ReplaceAllString(rule.Query, "")
		if value == rule.Query {
			t.Errorf("alert %s does not end with a comparison: %s", rule.Name, rule.Query)
		}
		s.hasData(rule.Name, value)
	}
	boards, err := filepath.Glob(filepath.Join(chart, "dashboards", "*.json"))
	if err != nil || len(boards) < 3 {
		t.Fatalf("dashboards: %v, %v", boards, err)
	}
	for _, file := range boards {
		s.shows(t, file)
	}
	s.isClean(t, target)
}

// threshold is the comparison at the end of an alert's expression.
var threshold = regexp.MustCompile(`\s*(==|>) [0-9.]+$`)

// hasData waits until an expression has data.
func (s *seen) hasData(of, expression string) {
	s.Helper()
	s.until(of+" has data: "+expression, func(ctx context.Context) error {
		_, err := prometheus.Query(ctx, s.prometheus, expression)
		return err
	})
}

// alerts are the alerting rules, as Prometheus has read and evaluated them.
func (s *seen) alerts(t *testing.T) (all []v1.AlertingRule) {
	t.Helper()
	rules, err := s.prometheus.Rules(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alert := rule.(v1.AlertingRule)
			if alert.LastError != "" {
				t.Errorf("alert %s: %s", alert.Name, alert.LastError)
			}
			all = append(all, alert)
		}
	}
	if len(all) < 7 {
		t.Fatalf("only %d alerts", len(all))
	}
	return all
}

// notices waits until these alerts, in alphabetical order, and no others have found their faults; some wait for minutes
// before they fire.
func (s *seen) notices(t *testing.T, want ...string) {
	t.Helper()
	s.until(fmt.Sprintf("alerts have noticed %v", want), func(context.Context) error {
		var names []string
		for _, alert := range s.alerts(t) {
			if alert.State != "inactive" {
				names = append(names, alert.Name)
			}
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			return fmt.Errorf("they have noticed %v", names)
		}
		return nil
	})
}

// shows checks that each query of a dashboard has data, and each of its choices a value.
func (s *seen) shows(t *testing.T, file string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	filled := []string{"$__rate_interval", "5m", "$__range", "5m"}
	for _, choice := range board.Templating.List {
		if choice.Type != "query" {
			continue
		}
		filled = append(filled, "$"+choice.Name, ".*")
		of := labelValues.FindStringSubmatch(choice.Query)
		if of == nil {
			t.Errorf("%s: choice %s: %s", file, choice.Name, choice.Query)
			continue
		}
		if values, _, _, err := s.prometheus.LabelValues(t.Context(), of[2], []string{of[1]}, time.Now().Add(-time.Hour), time.Now()); err != nil || len(values) == 0 {
			t.Errorf("%s: choice %s has the values %v, %v", file, choice.Name, values, err)
		}
	}
	fill := strings.NewReplacer(filled...)
	queries := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries++
			s.hasData(filepath.Base(file)+", "+panel.Title, fill.Replace(target.Expr))
		}
	}
	if queries < 5 {
		t.Errorf("%s has only %d queries", file, queries)
	}
}

// labelValues is Grafana's function for the values of a label of a metric.
var labelValues = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)

// isClean checks that promtool finds nothing wrong with the metrics.
func (s *seen) isClean(t *testing.T, target string) {
	t.Helper()
	response, err := http.Get("http://" + target + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	check := exec.CommandContext(t.Context(), prometheus.Program(t, "promtool"), "check", "metrics")
	check.Stdin = response.Body
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
