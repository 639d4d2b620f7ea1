package catalog

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// place keeps one file, over HTTP.
type place struct {
	mu   sync.Mutex
	kept []byte
	// busy is how many uploads it answers with 503, and loses how many bytes it loses of each.
	busy, loses int
	// noHead is the answer to HEAD; 0 means that of GET without the content.
	noHead int
}

func (p *place) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.Method == http.MethodHead && p.noHead > 0:
		http.Error(w, "", p.noHead)
	case r.Method == http.MethodPut && p.busy > 0:
		p.busy--
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "busy", http.StatusServiceUnavailable)
	case r.Method == http.MethodPut:
		all, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.kept = all[:max(0, len(all)-p.loses)]
		w.WriteHeader(http.StatusCreated)
	case p.kept == nil:
		http.NotFound(w, r)
	default:
		_, _ = w.Write(p.kept)
	}
}

// A backup of PostgreSQL is complete only if the place has all of it, and a restore deletes nothing before it has read the
// backup. The hooks run here with this machine's curl and tar.
func TestPostgreSQLsBackupIsWhole(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("there is no curl; test/databases/install.sh installs it")
	}
	document, err := os.ReadFile("../charts/services/postgresql.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var o v1alpha1.ServiceOffering
	if err := strictjson.DecodeYAML(document, &o); err != nil {
		t.Fatal(err)
	}
	db := o.Spec.Plans[0].Workload.Components[0].Container
	for name, row := range map[string]struct {
		busy, loses, noHead int // of the place
		// fails means that the backup fails. The place has replaced instead of the backup when it is restored.
		fails    bool
		replaced []byte
	}{
		"all goes well":              {},
		"the place answers no HEAD":  {noHead: http.StatusMethodNotAllowed},
		"so, and loses the end":      {noHead: http.StatusForbidden, loses: 512, fails: true},
		"the place was busy":         {busy: 1, fails: true},
		"the place keeps nothing":    {loses: 1 << 30, fails: true},
		"the place loses the end":    {loses: 512, fails: true},
		"the backup is lost later":   {replaced: []byte{}},
		"the backup is another file": {replaced: []byte("something else")},
	} {
		t.Run(name, func(t *testing.T) {
			place := &place{busy: row.busy, loses: row.loses, noHead: row.noHead}
			server := httptest.NewServer(place)
			t.Cleanup(server.Close)
			root := t.TempDir()
			write := func(name, content string) {
				t.Helper()
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var options []string
			for line := range strings.Lines(db.Backup.Files[0].Content) {
				if !strings.Contains(line, "${") {
					options = append(options, line)
				}
			}
			write("curl.conf", "url = \""+server.URL+"/backup.tar\"\n"+strings.Join(options, ""))
			write("data/pgdata/PG_VERSION", "15")
			write("data/pgdata/base/1", strings.Repeat("row ", 100_000))
			run := func(hook *v1alpha1.WorkloadHook) error {
				t.Helper()
				if err := os.RemoveAll(filepath.Join(root, "tmp")); err != nil {
					t.Fatal(err)
				}
				write("tmp/.keep", "")
				here := strings.NewReplacer("/var/lib/postgresql/data", filepath.Join(root, "data"), "/curl.conf", filepath.Join(root, "curl.conf"), "/tmp/", filepath.Join(root, "tmp")+"/")
				var command []string
				for _, word := range hook.Command {
					command = append(command, here.Replace(word))
				}
				out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
				t.Logf("%v: %s", err, out)
				return err
			}

			if err := run(db.Backup); (err != nil) != row.fails {
				t.Fatalf("the backup: %v, want a failure: %t", err, row.fails)
			}
			if row.fails {
				return
			}
			if row.replaced != nil {
				place.kept = row.replaced
			}
			write("data/pgdata/base/1", "other rows")
			if err := run(db.Restore); (err != nil) != (row.replaced != nil) {
				t.Errorf("the restore: %v, want a failure: %t", err, row.replaced != nil)
			}
			want := strings.Repeat("row ", 100_000)
			if row.replaced != nil {
				want = "other rows"
			}
			if got, err := os.ReadFile(filepath.Join(root, "data/pgdata/base/1")); err != nil || string(got) != want {
				t.Errorf("there are %d bytes, want %d: %v", len(got), len(want), err)
			}
		})
	}
}
