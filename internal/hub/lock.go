package hub

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// dataDirLock keeps a data directory to one process. The kernel drops it when
// the process dies, however it dies, so a lock file left behind means nothing.
type dataDirLock struct{ file *fileutil.LockedFile }

// lockDataDir locks the directory or names the process that has it.
func lockDataDir(dir string) (*dataDirLock, error) {
	name := filepath.Join(dir, "lock")
	file, err := fileutil.TryLockFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("the data directory is in use by %s; stop it, reach it with --kubeconfig %s, or choose another data directory",
			lockHolder(name), KubeconfigPath(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	lock := &dataDirLock{file}
	if err := lock.writeHolder(); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock file %s: %w", name, err), lock.release())
	}
	return lock, nil
}

func (l *dataDirLock) writeHolder() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release unlocks the directory. The file stays: removing it would let two
// processes lock two files of one name.
func (l *dataDirLock) release() error { return l.file.Close() }

func lockHolder(name string) string {
	content, err := os.ReadFile(name)
	if pid := strings.TrimSpace(string(content)); err == nil && pid != "" {
		return "process " + pid
	}
	return "another process"
}
