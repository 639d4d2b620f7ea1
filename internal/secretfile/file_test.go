package secretfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func text(content []byte) (string, error) {
	if string(content) == "bad" {
		return "", errors.New("bad")
	}
	return string(content), nil
}

func TestCurrentFollowsTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if _, err := Open("the file", path, text); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	write := func(content string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("one", 0o600)
	f, err := Open("the file", path, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		change func()
		want   string
	}{
		{"as it was opened", func() {}, "one"},
		{"changed", func() { write("second", 0o600) }, "second"},
		{"with content that is refused", func() { write("bad", 0o600) }, "second"},
		{"readable by others", func() { write("others'", 0o644) }, "second"},
		{"private again", func() { write("others'", 0o600) }, "others'"},
		{"too large", func() { write(strings.Repeat("x", largest+1), 0o600) }, "others'"},
		{"gone", func() { _ = os.Remove(path) }, "others'"},
		{"back", func() { write("fourth", 0o600) }, "fourth"},
	} {
		row.change()
		for range 2 {
			if got := f.Current(); got != row.want {
				t.Errorf("%s, it is %.20q, want %q", row.name, got, row.want)
			}
		}
	}
}

func TestMountedSecretsMayBeReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
		t.Errorf("a file that others may read: %v", err)
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(path), "..data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err != nil {
		t.Errorf("a mounted Secret: %v", err)
	}
}
