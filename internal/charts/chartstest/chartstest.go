// Package chartstest makes Helm charts for tests.
package chartstest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/charts"
)

//go:embed all:web
var web embed.FS

// Web returns the files of a chart of a web server, by their paths in the archive. Other files replace
// or add to them; an empty one is left out.
func Web(t testing.TB, others map[string]string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(web, "web", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := web.ReadFile(path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(files, others)
	maps.DeleteFunc(files, func(_, content string) bool { return content == "" })
	return files
}

// Pack returns the archive of a chart: the same for the same files.
func Pack(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	archive := tar.NewWriter(compressed)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		err := archive.WriteHeader(&tar.Header{Name: path, Mode: 0o644, Size: int64(len(files[path]))})
		if err == nil {
			_, err = archive.Write([]byte(files[path]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// Charts are charts by the digests of their archives.
type Charts map[string]*charts.Chart

// Of returns charts.
func Of(t testing.TB, archives ...[]byte) Charts {
	t.Helper()
	all := Charts{}
	for _, archive := range archives {
		chart, err := charts.Open(archive)
		if err != nil {
			t.Fatal(err)
		}
		all[charts.Digest(archive)] = chart
	}
	return all
}

// Chart implements workload.Charts.
func (c Charts) Chart(of *v1alpha1.WorkloadChart) (*charts.Chart, error) {
	if chart, ok := c[of.Digest]; ok {
		return chart, nil
	}
	return nil, errors.New("there is no such chart")
}
