package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// docs/placement.md shows what the command prints, with the files that it names.
func TestSimulateAsDocumented(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```\n$ sluice simulate ")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !closed {
		t.Fatal("docs/placement.md shows no simulation")
	}
	command, want, _ := strings.Cut(block, "\n")
	if got := mustSluice(t, append([]string{"simulate"}, strings.Fields(command)...)...); got != want {
		t.Errorf("sluice simulate %s prints\n%s\ndocumented is\n%s", command, got, want)
	}
	if got := mustSluice(t, append([]string{"simulate", "-o", "json"}, strings.Fields(command)...)...); !strings.Contains(got, `"organization": "shop"`) || strings.Contains(got, `"Organization"`) {
		t.Errorf("as JSON the consumer is in\n%.500s", got)
	}
	csv := mustSluice(t, append([]string{"simulate", "-o", "csv"}, strings.Fields(command)...)...)
	if lines := strings.Split(csv, "\n"); lines[0] != "order,at,plan,outcome,waited,clusters,price,why" || !strings.HasPrefix(lines[1], "web-1,0s,small,Sold,0s,us-1,0.064 EUR/h,") {
		t.Errorf("as CSV:\n%s", csv)
	}
}

func TestSimulateSaysWhatIsWrong(t *testing.T) {
	fleet := "../../docs/examples/simulate/fleet.yaml"
	for book, want := range map[string]string{
		"plan\nhuge\n":           `order order-2: no service has a plan "huge"`,
		"plan,at\nsmall,later\n": `--orders: line 2: at: "later": want a duration such as 90m or 36h`,
		"plan,parameters\nsmall,\"{\"\"cores\"\": 3}\"\n": "order order-2: parameters/cores: the plan takes no such parameter",
	} {
		file := filepath.Join(t.TempDir(), "orders.csv")
		if err := os.WriteFile(file, []byte(book), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sluice(t, "simulate", "--fleet", fleet, "--orders", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", book, err, want)
		}
	}
}
