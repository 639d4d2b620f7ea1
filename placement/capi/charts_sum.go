package capi

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

	"helm.sh/helm/v3/pkg/chart"
)

// stampedSum is the sum of a chart, and the stamp of the files that it was computed from.
type stampedSum struct {
	stamp string
	sum   hash.Cloner
}

// sum returns the sum of a chart's files, which the caller may add to. It reads the chart only
// if its files have changed since, because it is called at every check of every created
// cluster.
func (c *Charts) sum(ctx context.Context, name string) (hash.Hash, error) {
	stamp := c.stamp(name)
	if known, ok := c.known(name); ok && stamp != "" && known.stamp == stamp {
		return known.sum.Clone()
	}
	loaded, err := c.load(ctx, name)
	if err != nil {
		return nil, err
	}
	sum := sumOf(loaded)
	if c.stamp(name) == stamp { // nothing has changed while it was read
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sums == nil {
			c.sums = map[string]stampedSum{}
		}
		c.sums[name] = stampedSum{stamp, sum}
	}
	return sum.Clone()
}

func (c *Charts) known(name string) (stampedSum, bool) {
	if c == nil {
		return stampedSum{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.sums[name]
	return known, ok
}

// stamp describes the state of a chart's files by their names, sizes and modification times. It
// is empty if there are no files, or if these do not show a change.
func (c *Charts) stamp(name string) string {
	if c == nil {
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
	root, err := filepath.EvalSymlinks(filepath.Join(c.Folder, within)) // a fetched chart is named by its digest
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

// sumOf returns the sum of all files of a chart.
func sumOf(loaded *chart.Chart) hash.Cloner {
	sum := sha256.New()
	for _, file := range loaded.Raw {
		fmt.Fprintf(sum, "%s %d\n%s", file.Name, len(file.Data), file.Data)
	}
	return sum.(hash.Cloner)
}
