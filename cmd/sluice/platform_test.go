package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestPlatformShow: a shell can read the output, whatever characters the password has, and
// find the broker with it.
func TestPlatformShow(t *testing.T) {
	for _, row := range []struct {
		name     string
		serve    serveFlags
		url      string
		platform string
		want     string // the shell's value
	}{
		{name: "as made at the first start", url: "http://127.0.0.1:8080", want: "sluice"},
		{name: "all interfaces, with a certificate", serve: serveFlags{listener: listener{address: ":8443", certificate: "tls.crt"}}, url: "https://127.0.0.1:8443", want: "sluice"},
		{name: "IPv6", serve: serveFlags{listener: listener{address: "[::]:80"}}, url: "http://127.0.0.1:80", want: "sluice"},
		{name: "a public name", serve: serveFlags{trust: trustFlags{publicURL: "https://broker.example"}}, url: "https://broker.example", want: "sluice"},
		{name: "a port that is not known", serve: serveFlags{listener: listener{address: "127.0.0.1:0"}}, url: "", want: "sluice"},
		{
			name: "a password of the worst characters", url: "http://127.0.0.1:8080",
			platform: `{name: default, basic: [{username: cf, password: "it's $(touch pwned) \"` + "`id`" + `\" \\ *"}]}`, want: "cf",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			f, dir := row.serve, t.TempDir()
			f.dataDir = dir
			if f.listener.address == "" {
				f.listener.address = "127.0.0.1:8080"
			}
			if row.platform != "" {
				if err := os.WriteFile(platformsPath(dir), []byte("platforms:\n- "+row.platform+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.firstStart(slog.Default()); err != nil {
				t.Fatal(err)
			}
			printed := mustSluice(t, "platform", "show", "default", "--data-dir", dir)
			shell := exec.CommandContext(t.Context(), "sh", "-c", `eval "$1"; sh -c 'printf "%s\n%s\n%s" "${SLUICE_URL-}" "$SLUICE_USERNAME" "$SLUICE_PASSWORD"'`, "sh", printed) // a command sees them
			shell.Dir = dir
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			url, rest, _ := strings.Cut(string(out), "\n")
			user, password, _ := strings.Cut(rest, "\n")
			if url != row.url || user != row.want || len(password) < 20 {
				t.Errorf("the shell has %q, want %s at %q", out, row.want, row.url)
			}
			if row.platform != "" && password != "it's $(touch pwned) \"`id`\" \\ *" {
				t.Errorf("the password is %q", password)
			}
			if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
				t.Error("the password ran as a command")
			}
			if list := mustSluice(t, "platform", "list", "--data-dir", dir); !strings.Contains(list, row.want) || strings.Contains(list, password) {
				t.Errorf("listed as\n%s", list)
			}
			if list := mustSluice(t, "platform", "list", "-o", "json", "--data-dir", dir); list != "[\n  {\n    \"name\": \"default\",\n    \"users\": [\n      \""+row.want+"\"\n    ]\n  }\n]\n" {
				t.Errorf("listed as\n%s", list)
			}
			var shown struct{ URL, Username, Password string }
			if err := yaml.UnmarshalStrict([]byte(mustSluice(t, "platform", "show", "default", "-o", "yaml", "--data-dir", dir)), &shown); err != nil || shown.URL != url || shown.Username != user || shown.Password != password {
				t.Errorf("shown as %+v, %v", shown, err)
			}
		})
	}
	dir := t.TempDir()
	if _, err := sluice(t, "platform", "show", "default", "--data-dir", dir); err == nil || !strings.Contains(err.Error(), "run `sluice serve` first") {
		t.Errorf("without a file: %v", err)
	}
	if err := writeDefaultPlatform(platformsPath(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := sluice(t, "platform", "show", "other", "--data-dir", dir); err == nil || !strings.Contains(err.Error(), "sluice platform list") {
		t.Errorf("an unknown platform: %v", err)
	}
}
