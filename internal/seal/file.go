package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/sluice-dev/sluice/internal/secretfile"
)

// parse reads the content of a keyset file.
func parse(content []byte) (*keys, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(content)))
	if err != nil {
		// The cause may quote the file.
		return nil, errors.New("not a Tink keyset in JSON, or damaged")
	}
	return newKeys(handle)
}

// create makes and stores a keyset, unless another process was faster.
func create(path string) error {
	return locked(path, "make a keyset on another machine and put it into the Secret under the key "+filepath.Base(path), func() error {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return addPrimary(path, keyset.NewManager())
	})
}

// rotate adds a new primary key to the current content of the file.
func rotate(path string) error {
	return locked(path, "take "+filepath.Base(path)+" out of the Secret, rotate that file with `sluice keyset rotate`, and put it back", func() error {
		content, err := secretfile.Read(path)
		if err != nil {
			return err
		}
		before, err := parse(content)
		if err != nil {
			return err
		}
		return addPrimary(path, keyset.NewManagerFromHandle(before.handle))
	})
}

// addPrimary stores the set with a new primary key.
func addPrimary(path string, manager *keyset.Manager) error {
	id, err := manager.Add(aead.XChaCha20Poly1305KeyTemplate())
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	if err := manager.SetPrimary(id); err != nil {
		return fmt.Errorf("make the new key primary: %w", err)
	}
	handle, err := manager.Handle()
	if err != nil {
		return fmt.Errorf("assemble the keys: %w", err)
	}
	return store(path, handle)
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

// locked runs write while no other process writes this keyset. The remedy is for a keyset that cannot be written here.
func locked(path, remedy string, write func() error) error {
	readOnly := fmt.Errorf("%w; %s", ErrReadOnly, remedy)
	if secretfile.IsMounted(path) {
		return readOnly
	}
	lock, err := fileutil.LockFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission) {
		return readOnly
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return errors.Join(write(), lock.Close())
}
