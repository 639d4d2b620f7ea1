package store

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// sumNow returns the sum of the greeter in a folder of charts, in hexadecimal.
func sumNow(t *testing.T, c *Store, name string) string {
	t.Helper()
	sum, err := c.Sum(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	digits := hex.EncodeToString(sum.Sum(nil))
	sum.Write([]byte("values of one add-on")) // which are no part of the chart
	return digits
}

func TestAChartIsReadAgainOnlyWhenItsFilesHaveChanged(t *testing.T) {
	greeter, err := loader.Load("testdata/charts/greeter")
	if err != nil {
		t.Fatal(err)
	}
	c := &Store{Folder: t.TempDir()}
	archive, err := chartutil.Save(greeter, c.Folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(c.Folder, "greeter"), os.DirFS("testdata/charts/greeter")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, file string }{
		{filepath.Base(archive), archive},
		{"greeter", filepath.Join(c.Folder, "greeter", "Chart.yaml")},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := sumNow(t, c, test.name)
			info, err := os.Stat(test.file)
			if err != nil {
				t.Fatal(err)
			}
			// Files that are not a chart, but look like the one that was read.
			if err := os.WriteFile(test.file, bytes.Repeat([]byte("?"), int(info.Size())), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(test.file, time.Time{}, info.ModTime()); err != nil {
				t.Fatal(err)
			}
			if after := sumNow(t, c, test.name); after != before {
				t.Errorf("sum is %s, was %s", after, before)
			}
			if err := os.Chtimes(test.file, time.Time{}, info.ModTime().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Sum(t.Context(), test.name); err == nil {
				t.Error("that the file has changed is not noticed")
			}
		})
	}
	for _, outside := range []string{"../greeter", "greeter/templates", scheme + "../../etc", "none"} {
		if stamp := c.stamp(outside); stamp != "" {
			t.Errorf("%s has the stamp %q", outside, stamp)
		}
	}
}

func BenchmarkLookAtChart(b *testing.B) {
	c := &Store{Folder: "testdata/charts"}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			loaded, err := c.Load(b.Context(), "greeter")
			if err != nil {
				b.Fatal(err)
			}
			SumOf(loaded)
		}
	})
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.Sum(b.Context(), "greeter"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
