package secretfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// largest is the size beyond which a file is refused, in bytes.
const largest = 1 << 20

// File is the parsed content of a file, as it is now. It is safe for concurrent use.
type File[T any] struct {
	name, path string
	parse      func(content []byte) (T, error)

	mu      sync.Mutex
	content T
	seen    fs.FileInfo // the state that was read last, usable or not; nil if there was no file
}

// Open reads a file. The name is what the log calls it. The error contains fs.ErrNotExist if
// there is no file.
func Open[T any](name, path string, parse func(content []byte) (T, error)) (*File[T], error) {
	f := &File[T]{name: name, path: path, parse: parse}
	var err error
	f.content, f.seen, err = f.read()
	return f, err
}

// Current returns the content of the file as it is now. If the file is missing or cannot be used,
// it returns the last good content, and logs that once.
func (f *File[T]) Current() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	state, err := os.Stat(f.path)
	if err != nil {
		state = nil
	}
	if isSame(state, f.seen) {
		return f.content
	}
	content, state, err := f.read()
	f.seen = state
	if err != nil {
		slog.Warn(f.name+" cannot be used; the last good content stays in use", "path", f.path, "error", err)
		return f.content
	}
	slog.Info(f.name+" read", "path", f.path)
	f.content = content
	return f.content
}

func (f *File[T]) read() (content T, state fs.FileInfo, err error) {
	data, state, err := read(f.path)
	if err == nil {
		content, err = f.parse(data)
	}
	return content, state, err
}

// Read returns the content of a file. It refuses files that are too large, and those that others
// than the owner may read, except mounted Secrets.
func Read(path string) ([]byte, error) {
	content, _, err := read(path)
	return content, err
}

// read also returns the state of the file if there is one.
func read(path string) ([]byte, fs.FileInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		if state, statErr := os.Stat(path); statErr == nil {
			return nil, state, err // it may not be read
		}
		return nil, nil, err
	}
	defer file.Close()
	state, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if state.Mode().Perm()&0o077 != 0 && !IsMounted(path) {
		return nil, state, fmt.Errorf("its mode is %04o, so others may read the secrets in it; make it private with: chmod 600 %s", state.Mode().Perm(), path)
	}
	content, err := io.ReadAll(io.LimitReader(file, largest+1))
	if err == nil && len(content) > largest {
		err = errors.New("it has more than 1 MiB")
	}
	return content, state, err
}

// isSame reports whether two states are of the same, unchanged file, or both of none.
func isSame(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
}

// IsMounted reports whether a file is, or would be, in a Secret volume: the kubelet keeps a link
// named "..data" beside its files. Their modes are readable for a group, and often for all, within
// the pod only.
func IsMounted(path string) bool {
	_, err := os.Lstat(filepath.Join(filepath.Dir(path), "..data"))
	return err == nil
}
