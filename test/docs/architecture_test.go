// Package docs_test holds docs/architecture.md against the source.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

var (
	named = regexp.MustCompile("`((?:api|broker|catalog|placement)/[a-z0-9_/]+\\.go)`")
	step  = regexp.MustCompile(`^(\d)\. \*\*`)
	cited = regexp.MustCompile(`// Step (\d) of a provision \(docs/architecture\.md\)`)
	room  = regexp.MustCompile(`^((?:api|bindings|broker|catalog|internal|placement|selfdescription)[a-z0-9/]*)((?:, [a-z]+)*)\s`)
)

// TestTheWayOfAProvision: each step of the way names files that exist and that cite its number,
// and a reader follows it through at most 25 files.
func TestTheWayOfAProvision(t *testing.T) {
	_, way, found := strings.Cut(read(t, "docs/architecture.md"), "## The way of `PUT")
	if !found {
		t.Fatal("the way has gone")
	}
	way, _, _ = strings.Cut(way, "\n## ")
	var all []string
	steps := 0
	for line := range strings.Lines(way) {
		number := step.FindStringSubmatch(line)
		if number == nil {
			continue
		}
		steps++
		cites := false
		for _, match := range named.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(all, match[1]) {
				all = append(all, match[1])
			}
			for _, citation := range cited.FindAllStringSubmatch(read(t, match[1]), -1) {
				cites = cites || citation[1] == number[1]
			}
		}
		if !cites {
			t.Errorf("step %s: none of its files cites it", number[1])
		}
	}
	if steps == 0 || len(all) > 25 {
		t.Errorf("%d steps through %d files, want at most 25", steps, len(all))
	}
}

// TestThePackages: every package of the product is in the list, and the list has no other.
func TestThePackages(t *testing.T) {
	_, list, _ := strings.Cut(read(t, "docs/architecture.md"), "## Packages")
	list, _, _ = strings.Cut(list, "\n## ")
	listed := map[string]bool{}
	for line := range strings.Lines(list) {
		match := room.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		listed[match[1]] = true
		for beside := range strings.SplitSeq(strings.TrimPrefix(match[2], ", "), ", ") {
			if beside != "" {
				listed[filepath.Join(filepath.Dir(match[1]), beside)] = true
			}
		}
	}
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}}", "./api/...", "./bindings/...", "./broker/...", "./catalog/...", "./internal/...", "./placement/...", "./selfdescription/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for path := range strings.FieldsSeq(string(out)) {
		name := strings.TrimPrefix(path, "github.com/sluice-dev/sluice/")
		there[name] = true
		if !listed[name] && !strings.HasSuffix(name, "test") {
			t.Errorf("%s is not in the list", name)
		}
	}
	for name := range listed {
		if !there[name] {
			t.Errorf("the list has %s, which is no package", name)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
