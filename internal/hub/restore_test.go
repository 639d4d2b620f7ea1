package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sluice-dev/sluice/internal/backup"
)

// restoreRefuses checks that what cannot be restored changes nothing, beside a backup.
func restoreRefuses(t *testing.T, file []byte, key *age.X25519Identity) {
	t.Helper()
	with := func(version string, objects ...string) []byte {
		var out bytes.Buffer
		w, err := backup.NewWriter(&out, []age.Recipient{key.Recipient()}, backup.Header{Version: version})
		for _, object := range objects {
			err = errors.Join(err, w.Object(json.RawMessage(object)))
		}
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for _, row := range []struct {
		name    string
		content []byte
		prepare func(dir string, o *RestoreOptions)
		says    string
	}{
		{"half of it", file[:len(file)/2], nil, "not complete"},
		{"another key", file, func(dir string, o *RestoreOptions) { *o = restoreOf(dir, file, newIdentity(t)) }, "another key"},
		{"a later kind", with("test", `{"apiVersion":"sluice.dev/v2","kind":"Later","metadata":{"name":"a"}}`), nil, "restore it with the version that made it"},
		{"a later version of resources", with("test", `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"`+identityCRD+`"},"status":{"storedVersions":["v1alpha1","v9"]}}`), nil,
			identityCRD + " in version v9"},
		{"a later Sluice", with("v1.10.0"), func(_ string, o *RestoreOptions) { o.Version = "v1.9.3" }, "made by Sluice v1.10.0, and this is v1.9.3"},
		{"no identity", with("test"), nil, "does not have the hub's identity"},
		{"a file that is not known", file, func(_ string, o *RestoreOptions) { o.Files = nil }, "keyset.json"},
		{"another keyset is there", file, func(dir string, _ *RestoreOptions) {
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "keyset.json"), []byte("other"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, "move it away"},
		{"a hub is there", file, func(dir string, _ *RestoreOptions) {
			if err := os.MkdirAll(filepath.Join(dir, etcdDir), 0o700); err != nil {
				t.Fatal(err)
			}
		}, "there is a hub in"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			o := restoreOf(dir, row.content, key)
			if row.prepare != nil {
				row.prepare(dir, &o)
			}
			before := tree(t, dir)
			_, err := Restore(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("got %v, want %q in it", err, row.says)
			}
			if after := tree(t, dir); !slices.Equal(after, before) {
				t.Errorf("there is %q now, before there was %q", after, before)
			}
		})
	}
}

// TestLaterVersions: versions are compared by their numbers, and builds without numbers with none.
func TestLaterVersions(t *testing.T) {
	for _, row := range []struct {
		made, this string
		later      bool
	}{
		{"v0.2.0", "v0.1.9", true}, {"0.10.0", "v0.9.0", true}, {"v0.1.0", "v0.1.0", false}, {"v0.1.0", "v0.2.0", false},
		{"v0.1.0", "v0.1.0-5-gabcdef0", false}, {"v0.1.0-5-gabcdef0-dirty", "v0.1.0", false}, {"v0.2.0-1-gabcdef0", "v0.1.0", true},
		{"dev", "v0.1.0", false}, {"v9.0.0", "dev", false}, {"", "v0.1.0", false}, {"939a2469", "v0.1.0", false},
	} {
		if got := isLater(row.made, row.this); got != row.later {
			t.Errorf("%q is later than %q: %t", row.made, row.this, got)
		}
	}
}

// tree returns the paths below a folder.
func tree(t *testing.T, dir string) (paths []string) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			paths = append(paths, path)
		}
		return nil
	})
	return paths
}

// Environment of a process that restores and is killed: the backup's file, the folder, and the step.
const restoreEnv = "SLUICE_TEST_HUB_RESTORE"

// restoreAndDie restores as the environment says, and kills itself after a step.
func restoreAndDie(asked string) error {
	parts := strings.Split(asked, "|")
	file, err := os.ReadFile(parts[0])
	if err != nil {
		return err
	}
	key, err := age.ParseX25519Identity(parts[3])
	if err != nil {
		return err
	}
	o := restoreOf(parts[1], file, key)
	o.after = func(step string) {
		if step == parts[2] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	_, err = Restore(context.Background(), o)
	return errors.Join(errors.New("it was not killed"), err)
}

// restoreIsKilled checks that after a kill between any two steps no hub starts on a part of a backup, and that the next
// restore succeeds. The database is the same after each: a hub starts on the first.
func restoreIsKilled(t *testing.T, file []byte, key *age.X25519Identity, want map[string]any) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	var wantStored map[string]string
	for _, step := range []string{"rename", "check", "clear", "fill", "files"} {
		t.Run(step, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), restoreEnv+"="+strings.Join([]string{path, dir, step, key.String()}, "|"))
			out, err := child.CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child: %v\n%s", err, out)
			}
			if step == "fill" || step == "files" {
				if _, err := Start(t.Context(), Options{DataDir: dir, Embedded: true}); err == nil || !strings.Contains(err.Error(), "did not finish") {
					t.Errorf("a hub on a part of a backup: %v", err)
				}
			}
			_, err = Restore(t.Context(), restoreOf(dir, file, key))
			if done := step == "rename"; done != (err != nil) {
				t.Fatalf("the next restore: %v", err)
			}
			if keys, err := os.ReadFile(filepath.Join(dir, "keyset.json")); err != nil || string(keys) != "keys" {
				t.Errorf("the keyset is %q, %v", keys, err)
			}
			if has := storedIn(t, dir); wantStored == nil {
				wantStored = has
				wantSame(t, content(t, startHub(t, dir).Config, ""), want)
			} else if len(has) < len(want) || !maps.Equal(has, wantStored) {
				t.Errorf("the database has %d resources, others than the %d after a kill at rename", len(has), len(wantStored))
			}
			if err := isWhole(dir); err != nil {
				t.Errorf("no hub would start: %v", err)
			}
		})
	}
}

// storedIn returns the resources in the database of a stopped hub by key, without the definition that has the time of the
// restore.
func storedIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	store, err := startEtcd(t.Context(), dir, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	all, err := store.server.Server.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	if err := errors.Join(err, store.stop()); err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	for _, one := range all.Kvs {
		if !strings.HasSuffix(string(one.Key), identityCRD) {
			stored[string(one.Key)] = string(one.Value)
		}
	}
	return stored
}
