package hub

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

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

// release unlocks the directory. The file stays, but empty. If it were removed, two processes
// could lock two different files of the same name.
func (l *dataDirLock) release() error { return errors.Join(l.file.Truncate(0), l.file.Close()) }

func lockHolder(name string) string {
	if pid := readHolder(name); pid != 0 {
		return fmt.Sprintf("process %d", pid)
	}
	return "another process"
}

// Holder returns the PID of the process that runs, or starts, the hub of a data directory, as far as is
// known without taking its lock; 0 if there is none. After a reboot the PID may be that of another
// process.
func Holder(dir string) (pid int) {
	pid = readHolder(filepath.Join(dir, "lock"))
	if pid == 0 {
		return 0
	}
	process, err := os.FindProcess(pid)
	if err != nil || errors.Is(process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return 0
	}
	return pid
}

// readHolder returns the PID in the lock file; 0 if it has none.
func readHolder(name string) (pid int) {
	content, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
