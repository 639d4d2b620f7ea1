package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeyset: a keyset is created once, and only an existing one is rotated.
func TestKeyset(t *testing.T) {
	dir := t.TempDir()
	file, typo := filepath.Join(dir, "keyset.json"), filepath.Join(dir, "typo.json")
	if _, err := sluice(t, "keyset", "rotate", typo); err == nil || !strings.Contains(err.Error(), "sluice keyset new") {
		t.Errorf("rotating what is not there: %v", err)
	}
	if _, err := os.Stat(typo); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rotating what is not there has made a file: %v", err)
	}
	read := func() string {
		t.Helper()
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if out := mustSluice(t, "keyset", "new", file); !strings.Contains(out, "created") {
		t.Errorf("made: %s", out)
	}
	first := read()
	if out := mustSluice(t, "keyset", "new", file); !strings.Contains(out, "kept") || read() != first {
		t.Errorf("made again: %s", out)
	}
	if mustSluice(t, "keyset", "rotate", file); len(read()) <= len(first) {
		t.Error("rotating has added no key")
	}
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"new", "rotate"} {
		if _, err := sluice(t, "keyset", verb, file); err == nil || read() != "damaged" {
			t.Errorf("%s of a damaged file: %v", verb, err)
		}
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := sluice(t, "keyset", "new", file); err == nil || !strings.Contains(err.Error(), "the file exists and is not replaced: name another, or correct this one") {
		t.Errorf("new, where there is a file: %v", err)
	}
}
