package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCommandsUseTheFilesOfServe: Sluice is served with a keyset and a platforms file outside the data folder, in which an
// older platforms file is left. The commands seal with that keyset and make no other one, and a backup has these files.
func TestCommandsUseTheFilesOfServe(t *testing.T) {
	t.Parallel()
	away := t.TempDir()
	path := func(name string) string { return filepath.Join(away, name) }
	const listed = "platforms:\n- {name: listed, basic: [{username: u, password: p}]}\n"
	if err := os.WriteFile(path("callers.yaml"), []byte(listed), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSluice(t, "hub", "key", path("backup.key"))
	s := serveAnother(t, "sluice", "--keyset", path("keys.json"), "--platforms", path("callers.yaml"))
	s.must("sink", "add", "billing", "--url", "https://billing.example")
	s.must("collect")
	if _, err := os.Stat(filepath.Join(s.dir, keysetName)); !os.IsNotExist(err) {
		t.Errorf("another keyset: %v", err)
	}
	doctor, _ := s.sluice("doctor") // the sink may not be ready
	for _, want := range []string{"✔ keyset       opens what is sealed in ", "✔ platforms    " + path("callers.yaml") + " is valid"} {
		if !strings.Contains(doctor, want) {
			t.Errorf("no %q in\n%s", want, doctor)
		}
	}
	if out := s.must("platform", "list"); !strings.Contains(out, "listed") {
		t.Errorf("the platforms are\n%s", out)
	}
	s.must("hub", "backup", path("hub.backup"), "--key", path("backup.key"))

	restored := path("data")
	mustSluice(t, "hub", "restore", path("hub.backup"), "--key", path("backup.key"), "--data-dir", restored)
	for name, from := range map[string]string{keysetName: "keys.json", platformsName: "callers.yaml"} {
		was, errWas := os.ReadFile(path(from))
		is, errIs := os.ReadFile(filepath.Join(restored, name))
		if errWas != nil || errIs != nil || string(is) != string(was) {
			t.Errorf("%s is not %s: %v, %v", name, from, errWas, errIs)
		}
	}

	_ = s.process.Process.Signal(syscall.SIGTERM)
	_ = s.process.Wait()
	if err := os.Rename(path("keys.json"), filepath.Join(s.dir, keysetName)); err != nil {
		t.Fatal(err)
	}
	s.args = append(s.args, "--keyset", filepath.Join(s.dir, keysetName), "--platforms", filepath.Join(s.dir, platformsName))
	s.start()
	for _, name := range []string{keysetName, platformsName} {
		if is := pathIn(s.dir, name); is != filepath.Join(s.dir, name) {
			t.Errorf("after a start with the defaults, %s is in %s", name, is)
		}
	}
	if _, err := os.Stat(pathNote(s.dir, keysetName)); !os.IsNotExist(err) {
		t.Errorf("the note about the former keyset: %v", err)
	}
}

// TestCollectWithoutAKeyset: a command that only lists makes no keyset.
func TestCollectWithoutAKeyset(t *testing.T) {
	_, _, dir := startHub(t)
	mustSluice(t, "collect", "--data-dir", dir)
	if out := mustSluice(t, "collect", "-o", "jsonpath={@}", "--data-dir", dir); strings.Contains(out, "null") || !strings.Contains(out, "remnants") {
		t.Errorf("a document of nothing: %s", out)
	}
	if _, err := os.Stat(filepath.Join(dir, keysetName)); !os.IsNotExist(err) {
		t.Errorf("a keyset: %v", err)
	}
	if _, err := sluice(t, "collect", "--data-dir", dir, "--keyset", filepath.Join(dir, "typo.json")); err == nil {
		t.Error("a keyset that was named, and is not there, is none")
	}
}
