//go:build e2e

package e2e

import (
	"context"
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
	return commandsUnder(t, filepath.Join(root, file), "")
}

// commandsUnder returns those between a heading, a whole line, and the next one of any level.
func commandsUnder(t *testing.T, file, heading string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	must(t, err)
	text := string(content)
	if heading != "" {
		var found bool
		if _, text, found = strings.Cut(text, "\n"+heading+"\n"); !found {
			t.Fatalf("%s has no heading %q", file, heading)
		}
		text, _, _ = strings.Cut(text, "\n#")
	}
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// checkout copies the source tree, as a reader would have cloned it, to a folder of its own.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	copied := exec.Command("bash", "-euo", "pipefail", "-c", `git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
		tar --null --files-from - --create | tar --extract --directory "$0"`, dir)
	copied.Dir = root
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("copy the source tree: %v\n%s", err, out)
	}
	return dir
}

// machine matches the variables that say how this machine reaches the network and where it keeps
// what was downloaded and built; nothing else of our own environment reaches a reader's shell.
var machine = regexp.MustCompile(`(?i)^(PATH|(https?|no)_proxy|go[a-z]*|ssl_cert_[a-z]+|docker_host|sluice_cache)=`)

// newcomer is the environment of somebody who has just logged in, with what else a page asks for.
func newcomer(t *testing.T, environment ...string) []string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOCACHE").Output()
	must(t, err)
	caches := strings.Split(string(out), "\n")
	user, err := os.UserHomeDir()
	must(t, err)
	variables := []string{"HOME=" + t.TempDir(), "GOMODCACHE=" + caches[0], "GOCACHE=" + caches[1], "SLUICE_CACHE=" + filepath.Join(user, ".cache/sluice")}
	for _, variable := range os.Environ() {
		if machine.MatchString(variable) {
			variables = append(variables, variable)
		}
	}
	return append(variables, environment...)
}

// shellCommand is a script in a folder, in nothing but the environment given. It is killed with the context.
func shellCommand(ctx context.Context, dir, script string, environment []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, environment
	return cmd
}

// shell runs a script, and fails the test if it fails.
func shell(t *testing.T, dir, script string, environment []string) {
	t.Helper()
	out, err := shellCommand(context.Background(), dir, script, environment).CombinedOutput() // clean-ups run scripts, too
	t.Logf("%s\n%s", script, out)
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// TestReadme runs the blocks of the README, byte for byte, in a checkout of its own: the demo,
// which must leave Sluice serving, and everything after it. The block that runs the tests is
// the one that continuous integration runs, and brought us here.
func TestReadme(t *testing.T) {
	t.Parallel()
	dir, environment := checkout(t), newcomer(t)
	t.Cleanup(func() { shell(t, dir, "make demo-down", environment) })
	ci, err := os.ReadFile(filepath.Join(root, ".ci/run"))
	must(t, err)
	for _, block := range commands(t, "README.md") {
		if strings.TrimSpace(block) == "make test" {
			if !strings.Contains(string(ci), "\nmake test\n") {
				t.Error(".ci/run does not run the README's test command")
			}
			continue
		}
		shell(t, dir, block, environment)
	}
	url, err := os.ReadFile(filepath.Join(dir, ".demo/url"))
	must(t, err)
	ready(t, strings.TrimSpace(string(url)))
}

// TestFirstSteps runs the blocks of the first steps one after the other, byte for byte, in one
// shell as a reader would, against one of the kind clusters.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	needMembers(t)
	kubectl, err := output("test/kubernetes/build.sh", "kubectl")
	must(t, err)
	environment := newcomer(t, "KUBECONFIG="+kubeconfig(members[0]), "PATH="+strings.TrimSpace(kubectl)+":"+os.Getenv("PATH"))
	shell(t, checkout(t), "trap 'kill %1; wait %1 || true' EXIT\n"+strings.Join(commands(t, "docs/first-steps.md"), "\n"), environment)
	nothingLeft(t, members[0])
	if _, err := http.Get("http://127.0.0.1:8080/healthz"); err == nil {
		t.Error("the steps left Sluice serving")
	}
}
