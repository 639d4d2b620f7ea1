package seal

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

var owner = Owner("ServiceBinding", "sluice", "binding-a", "uid-1")

func open(t testing.TB, path string) *Keyset {
	t.Helper()
	k, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealFor(t testing.TB, k *Keyset, plaintext string, associatedData []byte) []byte {
	t.Helper()
	sealed, err := k.Seal([]byte(plaintext), associatedData)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func wantUnsealed(t testing.TB, k *Keyset, sealed []byte, want string) {
	t.Helper()
	got, err := k.Unseal(sealed, owner)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Reveal()) != want {
		t.Errorf("unsealed %q, want %q", got.Reveal(), want)
	}
}

func TestSealedValueComesBackForItsOwnerOnly(t *testing.T) {
	k := open(t, filepath.Join(t.TempDir(), "keyset"))
	sealed := sealFor(t, k, "password", owner)
	wantUnsealed(t, k, sealed, "password")
	if bytes.Contains(sealed, []byte("password")) {
		t.Error("the plaintext is in the sealed value")
	}
	if again := sealFor(t, k, "password", owner); bytes.Equal(sealed, again) {
		t.Error("equal plaintexts give equal sealed values")
	}
	for name, other := range map[string][]byte{
		"kind":      Owner("ServiceInstance", "sluice", "binding-a", "uid-1"),
		"namespace": Owner("ServiceBinding", "other", "binding-a", "uid-1"),
		"name":      Owner("ServiceBinding", "sluice", "binding-b", "uid-1"),
		"uid":       Owner("ServiceBinding", "sluice", "binding-a", "uid-2"),
		"nothing":   nil,
	} {
		if _, err := k.Unseal(sealed, other); !errors.Is(err, ErrNotAuthentic) {
			t.Errorf("an owner with another %s got %v", name, err)
		}
	}
	if _, err := k.Seal([]byte("password"), nil); err == nil {
		t.Error("sealed without an owner")
	}
}

func TestAlteredValueIsNotUnsealed(t *testing.T) {
	k := open(t, filepath.Join(t.TempDir(), "keyset"))
	sealed := sealFor(t, k, "password", owner)
	rapid.Check(t, func(t *rapid.T) {
		altered := slices.Clone(sealed)
		if rapid.Bool().Draw(t, "truncate") {
			altered = altered[:rapid.IntRange(0, len(sealed)-1).Draw(t, "length")]
		} else {
			altered[rapid.IntRange(0, len(sealed)-1).Draw(t, "index")] ^= rapid.ByteRange(1, 255).Draw(t, "bits")
		}
		if got, err := k.Unseal(altered, owner); err == nil {
			t.Fatalf("unsealed %q", got.Reveal())
		} else if !errors.Is(err, ErrNotAuthentic) && !errors.Is(err, ErrUnknownKey) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestKeysetIsPrivateAndLasts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset")
	sealed := sealFor(t, open(t, path), "password", owner)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %o", info.Mode().Perm())
	}
	wantUnsealed(t, open(t, path), sealed, "password")
}

func TestOpenAtOnceGivesOneKeyset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset")
	keysets := make([]*Keyset, 16)
	var group sync.WaitGroup
	for i := range keysets {
		group.Go(func() {
			var err error
			if keysets[i], err = Open(path); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	sealed := sealFor(t, keysets[0], "password", owner)
	for _, k := range keysets {
		wantUnsealed(t, k, sealed, "password")
	}
}

// isCurrent reports whether a value was sealed with the primary key.
func (k *Keyset) isCurrent(sealed []byte) bool {
	id, ok := keyID(sealed)
	return ok && id == k.current().handle.KeysetInfo().GetPrimaryKeyId()
}

func TestRotateKeepsOldValuesReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset")
	k, follower := open(t, path), open(t, path)
	before := sealFor(t, k, "before", owner)
	if err := k.Rotate(); err != nil {
		t.Fatal(err)
	}
	after := sealFor(t, k, "after", owner)
	if k.isCurrent(before) || !k.isCurrent(after) {
		t.Errorf("current: before %t, after %t", k.isCurrent(before), k.isCurrent(after))
	}
	for name, reader := range map[string]*Keyset{"the rotating": k, "a running": follower, "a new": open(t, path)} {
		t.Run("with "+name+" keyset", func(t *testing.T) {
			wantUnsealed(t, reader, before, "before")
			wantUnsealed(t, reader, after, "after")
			if !reader.isCurrent(sealFor(t, reader, "x", owner)) {
				t.Error("does not seal with its primary key")
			}
		})
	}
	if sealed := sealFor(t, follower, "x", owner); !k.isCurrent(sealed) {
		t.Error("the running keyset still seals with the old key")
	}
}

func TestRotationsAtOnceLoseNoKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset")
	open(t, path)
	var group sync.WaitGroup
	sealed := make([][]byte, 8)
	for i := range sealed {
		k := open(t, path)
		group.Go(func() {
			if err := k.Rotate(); err != nil {
				t.Error(err)
				return
			}
			sealed[i], _ = k.Seal([]byte("password"), owner)
		})
	}
	group.Wait()
	k := open(t, path)
	for _, value := range sealed {
		wantUnsealed(t, k, value, "password")
	}
	if got := len(k.current().handle.KeysetInfo().GetKeyInfo()); got != 1+len(sealed) {
		t.Errorf("%d keys after %d rotations", got, len(sealed))
	}
}

func TestAnotherKeysetSaysThatItLacksTheKey(t *testing.T) {
	dir := t.TempDir()
	one, other := open(t, filepath.Join(dir, "one")), open(t, filepath.Join(dir, "other"))
	sealed := sealFor(t, one, "password", owner)
	if _, err := other.Unseal(sealed, owner); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("got %v", err)
	}
	if err := one.Rotate(); err != nil {
		t.Fatal(err)
	}
	if !one.Has(sealed) || other.Has(sealed) || one.Has(nil) || one.Has([]byte("no sealed value")) {
		t.Errorf("its own keyset has the key: %t, another one: %t; of no sealed value: %t", one.Has(sealed), other.Has(sealed), one.Has([]byte("no sealed value")))
	}
}

func TestBrokenFileDoesNotReplaceTheKeys(t *testing.T) {
	var log bytes.Buffer
	previous := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(previous) })

	path := filepath.Join(t.TempDir(), "keyset")
	k := open(t, path)
	sealed := sealFor(t, k, "password", owner)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []func() error{
		func() error { return os.WriteFile(path, []byte(`{"key": "c2VjcmV0"}`), 0o600) },
		func() error { return os.Remove(path) },
		func() error { return errors.Join(os.WriteFile(path, good, 0o600), os.Chmod(path, 0o644)) },
	} {
		log.Reset()
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		wantUnsealed(t, k, sealed, "password")
		wantUnsealed(t, k, sealed, "password")
		if got := strings.Count(log.String(), "level=WARN"); got != 1 {
			t.Errorf("%d warnings, want one:\n%s", got, log.String())
		}
		if strings.Contains(log.String(), "c2VjcmV0") {
			t.Error("the log shows the file's content")
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Rotate(); err != nil {
		t.Errorf("after repair: %v", err)
	}
}

func TestFileThatOthersMayReadIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset")
	open(t, path)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v, want the remedy", err)
	}
}

// mountSecret lays files out as the kubelet does: links to files in a dated
// directory, which "..data" points to.
func mountSecret(t *testing.T, dir, version string, files map[string][]byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(dir, version), 0o755))
	for name, content := range files {
		must(os.WriteFile(filepath.Join(dir, version, name), content, 0o644))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	must(os.Symlink(version, filepath.Join(dir, "..new")))
	must(os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
}

func TestMountedSecret(t *testing.T) {
	source := filepath.Join(t.TempDir(), "keyset")
	author := open(t, source)
	before := sealFor(t, author, "before", owner)
	content := func() map[string][]byte {
		c, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		return map[string][]byte{"keyset": c}
	}

	dir := t.TempDir()
	mountSecret(t, dir, "..2026_01", content())
	mounted := open(t, filepath.Join(dir, "keyset"))
	wantUnsealed(t, mounted, before, "before")
	if err := mounted.Rotate(); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "take keyset out of the Secret, rotate that file") {
		t.Errorf("Rotate: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "make a keyset on another machine and put it into the Secret under the key absent") {
		t.Errorf("missing key of the Secret: %v", err)
	}

	if err := author.Rotate(); err != nil {
		t.Fatal(err)
	}
	mountSecret(t, dir, "..2026_02", content())
	wantUnsealed(t, mounted, sealFor(t, author, "after", owner), "after")
}

func BenchmarkSealUnseal(b *testing.B) {
	k := open(b, filepath.Join(b.TempDir(), "keyset"))
	plaintext := bytes.Repeat([]byte("x"), 2048)
	for b.Loop() {
		sealed, err := k.Seal(plaintext, owner)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := k.Unseal(sealed, owner); err != nil {
			b.Fatal(err)
		}
	}
}
