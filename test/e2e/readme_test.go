//go:build e2e

package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commands returns the shell blocks of a Markdown file, in order.
func commands(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must(t, err)
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// shell runs a script in the source tree and fails the test if it fails.
func shell(t *testing.T, script string, environment ...string) {
	t.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", script, out)
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// TestReadme runs the blocks of the README: the demo, which must leave Sluice
// serving, and everything after it. The block that runs the tests is the one that
// continuous integration runs, and brought us here.
func TestReadme(t *testing.T) {
	t.Cleanup(func() { shell(t, "make demo-down") })
	ci, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	must(t, err)
	for _, block := range commands(t, "README.md") {
		if strings.TrimSpace(block) == "make test" {
			if !strings.Contains(string(ci), "\nmake test\n") {
				t.Error(".ci/run does not run the README's test command")
			}
			continue
		}
		shell(t, block, "SLUICE_DATA_DIR="+filepath.Join(mustAbs(t, root), ".demo/data"))
	}
	ready(t, "http://127.0.0.1:8844")
}

// TestFirstSteps runs the blocks of the first steps one after the other, in one
// shell as a reader would, against one of the kind clusters.
func TestFirstSteps(t *testing.T) {
	bin, err := output("test/kubernetes/build.sh", "kubectl")
	must(t, err)
	script := strings.Join(commands(t, "docs/first-steps.md"), "\n")
	script = strings.Replace(script, "bin/sluice cluster add", "until curl -fs 127.0.0.1:8080/readyz >/dev/null; do sleep 0.2; done\nbin/sluice cluster add", 1)
	shell(t, "trap 'kill %1; wait %1 || true; rm -f first.kubeconfig' EXIT\n"+script,
		"SLUICE_DATA_DIR="+t.TempDir(),
		"KUBECONFIG="+kubeconfig(members[0]),
		"MEMBER_CONTEXT=kind-"+members[0],
		"PATH="+strings.TrimSpace(bin)+":"+os.Getenv("PATH"),
	)
	nothingLeft(t, members[0])
	if _, err := http.Get("http://127.0.0.1:8080/healthz"); err == nil {
		t.Error("the steps left Sluice serving")
	}
}
