package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
)

// stampedSum is the sum of a chart, and the stamp of the files that it was computed from.
type stampedSum struct {
	stamp string
	sum   hash.Cloner
}

// Sum returns the sum of a chart's files, which the caller may add to. It reads the chart only
// if its files have changed since, because it is called at every check of every created
// cluster.
func (s *Store) Sum(ctx context.Context, name string) (hash.Hash, error) {
	stamp := s.stamp(name)
	if known, ok := s.known(name); ok && stamp != "" && known.stamp == stamp {
		return known.sum.Clone()
	}
	loaded, err := s.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	sum := SumOf(loaded)
	if s.stamp(name) == stamp { // nothing has changed while it was read
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sums == nil {
			s.sums = map[string]stampedSum{}
		}
		s.sums[name] = stampedSum{stamp, sum}
	}
	return sum.Clone()
}

func (s *Store) known(name string) (stampedSum, bool) {
	if s == nil {
		return stampedSum{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.sums[name]
	return known, ok
}

// stamp describes the state of a chart's files by their names, sizes and modification times. It
// is empty if there are no files, or if these do not show a change.
func (s *Store) stamp(name string) string {
	if s == nil {
		return ""
	}
	within := name
	if reference, ok := strings.CutPrefix(name, scheme); ok {
		within = filepath.Join(fetched, filepath.FromSlash(reference))
	} else if filepath.Dir(name) != "." {
		return ""
	}
	if !filepath.IsLocal(within) {
		return ""
	}
	root, err := filepath.EvalSymlinks(filepath.Join(s.Folder, within)) // a fetched chart is named by its digest
	if err != nil {
		return ""
	}
	stamp := strings.Builder{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.IsDir() && !entry.IsDir() {
			return errors.New("a link to a folder, which is not walked")
		}
		fmt.Fprintf(&stamp, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		return ""
	}
	return stamp.String()
}

// SumOf returns the sum of all files of a chart.
func SumOf(loaded *chart.Chart) hash.Cloner {
	sum := sha256.New()
	for _, file := range loaded.Raw {
		fmt.Fprintf(sum, "%s %d\n%s", file.Name, len(file.Data), file.Data)
	}
	return sum.(hash.Cloner)
}
