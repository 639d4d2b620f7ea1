package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/test/osb/suitetest"
)

// TestUsageOfAnInstance: an instance counts from its delivery to the request for its deletion, at the price of the broker that
// has it, also if Sluice is killed meanwhile; the operator and the platform see the same, also when it is gone.
func TestUsageOfAnInstance(t *testing.T) {
	t.Parallel()
	s := serveAnother(t, "sluice")
	s.sellBehind(t, &suitetest.Broker{}, &suitetest.Broker{}, false)
	s.order(t, "one", "{}")
	type sum struct {
		Seconds                                               int64
		Cost, Currency, Plan, Provider, Cluster, Organization string
		ReservedSeconds                                       map[string]string
	}
	read := func() sum {
		var sums []sum
		out := s.must("usage", "--by", "organization,plan,cluster", "-o", "json")
		if err := json.Unmarshal([]byte(out), &sums); err != nil || len(sums) > 1 {
			t.Fatalf("%v: %s", err, out)
		}
		return append(sums, sum{})[0]
	}
	grows := func(beyond int64) func(context.Context) error {
		return func(context.Context) error {
			if got := read(); got.Seconds <= beyond {
				return fmt.Errorf("it is %+v", got)
			}
			return nil
		}
	}
	s.until("it counts", grows(0))
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.start()
	s.until("it goes on", grows(read().Seconds))
	s.deprovision(t, "one")

	got := read()
	var agreed []struct {
		Contract struct {
			Total, Clusters []struct{ Provider, Currency string }
		}
		EndedAt *time.Time `json:"ended_at"`
	}
	if out := s.must("instance", "contract", "one", "-o", "json"); json.Unmarshal([]byte(out), &agreed) != nil || len(agreed) != 1 || agreed[0].EndedAt == nil ||
		len(agreed[0].Contract.Clusters) != 1 || agreed[0].Contract.Clusters[0].Currency != "EUR" {
		t.Errorf("its contracts are %s", out)
	}
	var events []struct {
		Type, Operation string
		At              time.Time
	}
	if err := json.Unmarshal([]byte(s.must("events", "one", "-o", "json")), &events); err != nil {
		t.Fatal(err)
	}
	var delivered, deleted time.Time
	for _, e := range events {
		switch {
		case e.Type == "Delivered":
			delivered = e.At
		case e.Type == "Ordered" && e.Operation == "deprovision":
			deleted = e.At
		}
	}
	// The deletion is what the hub says, and the controller hears of it at most a second later.
	if longest := deleted.Unix() - delivered.Unix(); got.Seconds > longest || got.Seconds < longest-2 {
		t.Errorf("%d seconds from %s to %s", got.Seconds, delivered, deleted)
	}
	// 1 EUR in 730 hours, in billionths: 1369863 for each hour
	if want := fmt.Sprintf("%.9f", float64(got.Seconds)*1369863/3600/1e9); strings.TrimRight(want, "0") != got.Cost && want != got.Cost {
		t.Errorf("it costs %s, want %s", got.Cost, want)
	}
	if got.Cluster != "eu" || got.Plan != "small" || got.Currency != "EUR" || got.Organization != "o" || got.ReservedSeconds["sluice.dev/instances"] != fmt.Sprint(got.Seconds) {
		t.Errorf("it is %+v", got)
	}
	var platform struct{ Usage []sum }
	if status, answer := s.send(t, http.MethodGet, "/usage?by=organization", ""); status != http.StatusOK || json.Unmarshal([]byte(answer), &platform) != nil ||
		len(platform.Usage) != 1 || platform.Usage[0].Cost != got.Cost || platform.Usage[0].Seconds != got.Seconds || strings.Contains(answer, "cluster") {
		t.Errorf("the platform reads %d %s", status, answer)
	}
	rows, err := csv.NewReader(strings.NewReader(s.must("usage", "-o", "focus", "--issuer", "Example Cloud"))).ReadAll()
	if err != nil || len(rows) != 2 || rows[0][0] != "BilledCost" || rows[1][0] != got.Cost {
		t.Errorf("FOCUS: %v, %v", err, rows)
	}
	if out := s.must("usage", "--by", "instance", "-o", "csv"); !strings.Contains(out, ",first,one,"+fmt.Sprint(got.Seconds)+",") {
		t.Errorf("CSV: %s", out)
	}
	if out := s.must("usage"); !strings.Contains(out, "mysql") || !strings.Contains(out, got.Cost+" EUR") {
		t.Errorf("table: %s", out)
	}
	if out := s.must("usage", "--platform", "second", "-o", "json"); out != "nothing was used of platform \"second\" in the month\n[]\n" {
		t.Errorf("of another platform: %s", out)
	}
	if out := s.must("usage", "--month", "2026-01", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("in another month: %s", out)
	}
	page, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Usage and cost\n")
	section, _, _ = strings.Cut(section, "\n## ")
	ran := 0
	for line := range strings.Lines(section) {
		if command, isOne := strings.CutPrefix(line, "sluice "); isOne {
			command, _, _ = strings.Cut(command, " > ")
			words := csv.NewReader(strings.NewReader(command)) // quotes, as in a shell
			words.Comma = ' '
			args, err := words.Read()
			if err != nil {
				t.Fatal(err)
			}
			s.must(args...)
			ran++
		}
	}
	if ran != 4 {
		t.Errorf("the documentation has %d commands", ran)
	}
	for flag, wrong := range map[string]string{"--month": "October", "--by": "city", "--per": "week", "-o": "xml"} {
		if _, err := s.sluice("usage", flag, wrong); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s %s: %v", flag, wrong, err)
		}
	}
	if _, err := s.sluice("usage", "--month", "2999-01"); err == nil || !strings.Contains(err.Error(), "has not begun") {
		t.Errorf("of a month to come: %v", err)
	}
}
