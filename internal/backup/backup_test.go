package backup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
)

// key makes a key file, and returns its path.
func key(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup.key")
	if _, err := NewKey(path); err != nil {
		t.Fatal(err)
	}
	return path
}

var taken = Header{Taken: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Revision: "7", Hub: "hub-1", Version: "v1"}

// written returns a backup with a file and some objects.
func written(t testing.TB, path string) []byte {
	t.Helper()
	recipients, err := Recipients(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, recipients, taken)
	if err != nil {
		t.Fatal(err)
	}
	err = w.File("keyset.json", []byte("secret"))
	for i := range 2000 {
		err = errors.Join(err, w.Object(json.RawMessage(fmt.Sprintf(`{"number":%d,"filler":"%x"}`, i, i*i*i*1234567))))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readBack reads a backup with the key at path.
func readBack(t testing.TB, content []byte, path string) (*Header, []Entry, error) {
	t.Helper()
	identities, err := Identities(path)
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	header, err := Read(bytes.NewReader(content), identities, func(e Entry) error {
		entries = append(entries, e)
		return nil
	})
	return header, entries, err
}

func TestReadsWhatWasWritten(t *testing.T) {
	path := key(t)
	content := written(t, path)
	header, entries, err := readBack(t, content, path)
	if err != nil || *header != taken || len(entries) != 2001 {
		t.Fatalf("header %+v, %d entries, %v", header, len(entries), err)
	}
	if f := entries[0].File; f == nil || f.Name != "keyset.json" || string(f.Content) != "secret" {
		t.Errorf("the file is %+v", f)
	}
	if got := string(entries[1].Object); got != `{"number":0,"filler":"0"}` {
		t.Errorf("the first object is %s", got)
	}
	if bytes.Contains(content, []byte("filler")) {
		t.Error("the content is readable without the key")
	}
}

// TestCutAnywhereIsRefused: no part of a backup passes for the whole, wherever it ends.
func TestCutAnywhereIsRefused(t *testing.T) {
	path := key(t)
	content := written(t, path)
	for length := 0; length < len(content); length += 1 + length/150 {
		if _, _, err := readBack(t, content[:length], path); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotBackup) {
			t.Fatalf("the first %d of %d bytes: %v", length, len(content), err)
		}
	}
}

func TestRefusals(t *testing.T) {
	path := key(t)
	content := written(t, path)
	changed := func(change func([]byte) []byte) []byte { return change(bytes.Clone(content)) }
	unfinished := func() []byte { // complete for age, but without its last entry
		recipients, _ := Recipients(path)
		var out bytes.Buffer
		w, err := NewWriter(&out, recipients, taken)
		if err := errors.Join(err, w.zipped.Close(), w.sealed.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	for _, row := range []struct {
		name    string
		content []byte
		key     string
		want    error
	}{
		{"another key", content, key(t), ErrWrongKey},
		{"another version", changed(func(b []byte) []byte { return bytes.Replace(b, []byte(Magic+"1"), []byte(Magic+"2"), 1) }), path, ErrVersion},
		{"another file", []byte("PK\x03\x04" + strings.Repeat("x", 100)), path, ErrNotBackup},
		{"nothing", nil, path, ErrNotBackup},
		{"one bit", changed(func(b []byte) []byte { b[len(b)-100] ^= 1; return b }), path, ErrDamaged},
		{"a byte more", changed(func(b []byte) []byte { return append(b, 0) }), path, ErrDamaged},
		{"without an end", unfinished(), path, ErrDamaged},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, _, err := readBack(t, row.content, row.key); !errors.Is(err, row.want) {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	path := key(t)
	if _, err := NewKey(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second key in one file: %v", err)
	}
	public := filepath.Join(t.TempDir(), "backup.pub")
	write := func(path, content string, mode fs.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	identities, err := Identities(path)
	if err != nil {
		t.Fatal(err)
	}
	write(public, identities[0].(*age.X25519Identity).Recipient().String()+"\n", 0o644)
	if _, entries, err := readBack(t, written(t, public), path); err != nil || len(entries) != 2001 {
		t.Errorf("sealed with the public key, opened with the secret one: %d entries, %v", len(entries), err)
	}
	if _, err := Identities(public); err == nil {
		t.Error("a public key opens backups")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Recipients(path); err == nil {
		t.Error("a secret key that others may read is taken")
	}
	if _, err := Recipients(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "sluice hub key") {
		t.Errorf("without a file: %v", err)
	}
}
