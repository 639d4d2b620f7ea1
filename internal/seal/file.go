package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// maxFile is the largest keyset file that is read, in bytes: thousands of keys.
const maxFile = 1 << 20

// load reads the file. If it is missing, the error is fs.ErrNotExist.
func load(path string) (*keys, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if err := CheckPrivate(path, info); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(content)))
	if err != nil {
		// The cause may quote the file.
		return nil, errors.New("not a Tink keyset in JSON, or damaged")
	}
	return newKeys(handle, info)
}

// create makes and stores a keyset. If another process was faster, it returns that one's.
func create(path string) (*keys, error) {
	return locked(path, func() (*keys, error) {
		loaded, err := load(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return loaded, err
		}
		return addPrimary(path, keyset.NewManager())
	})
}

// rotate adds a new primary key to the current content of the file.
func rotate(path string) (*keys, error) {
	return locked(path, func() (*keys, error) {
		loaded, err := load(path)
		if err != nil {
			return nil, err
		}
		return addPrimary(path, keyset.NewManagerFromHandle(loaded.handle))
	})
}

// addPrimary stores the set with a new primary key.
func addPrimary(path string, manager *keyset.Manager) (*keys, error) {
	id, err := manager.Add(aead.XChaCha20Poly1305KeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	if err := manager.SetPrimary(id); err != nil {
		return nil, fmt.Errorf("make the new key primary: %w", err)
	}
	handle, err := manager.Handle()
	if err != nil {
		return nil, fmt.Errorf("assemble the keys: %w", err)
	}
	if err := store(path, handle); err != nil {
		return nil, err
	}
	return load(path)
}

// store replaces the file in one step. When it returns, a crash of the machine
// does not bring the old file back.
func store(path string, handle *keyset.Handle) error {
	var content bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&content)); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	if err := renameio.WriteFile(path, content.Bytes(), 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sync its directory: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync its directory: %w", err)
	}
	return nil
}

// locked runs write while no other process writes this keyset.
func locked(path string, write func() (*keys, error)) (*keys, error) {
	if isMountedSecret(path) {
		return nil, readOnly(path)
	}
	lock, err := fileutil.LockFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return nil, readOnly(path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	written, err := write()
	return written, errors.Join(err, lock.Close())
}

func readOnly(path string) error {
	return fmt.Errorf("%w; make a keyset on another machine and put it into the Secret under the key %s", ErrReadOnly, filepath.Base(path))
}

// CheckPrivate returns an error for a file with secrets that others than its owner may read,
// unless it is a mounted Secret.
func CheckPrivate(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o077 != 0 && !isMountedSecret(path) {
		return fmt.Errorf("its mode is %04o, so others may read the secrets in it; make it private with: chmod 600 %s", info.Mode().Perm(), path)
	}
	return nil
}

// isMountedSecret reports whether the file is, or would be, in a Secret volume:
// the kubelet keeps a link named "..data" beside its files. Their modes are
// readable for a group, and often for all, within the pod only.
func isMountedSecret(path string) bool {
	_, err := os.Lstat(filepath.Join(filepath.Dir(path), "..data"))
	return err == nil
}
