// Command pack writes the charts of the packages in charts/addons/packages.yaml into a folder, for
// sluice serve --charts:
//
//	go run ./charts/addons/pack FOLDER
//
// Charts of other projects come from their Go modules, which the checksum database vouches for, and the
// others from charts/addons. The same files give the same archive everywhere, so that its digest is the one
// in the package.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
)

// source of a chart.
type source struct {
	// name of the chart, and its version, which together name the archive.
	name, version string
	// module that carries it, with its version; empty for the charts beside this command.
	module string
	// folder of the chart in the module, or of definitions that become a chart.
	folder string
	// definitions reports that the folder has custom resource definitions only.
	definitions bool
}

// sources of the charts.
var sources = []source{
	{name: "flannel", version: "v0.27.4", module: "github.com/flannel-io/flannel@v0.27.4", folder: "chart/kube-flannel"},
	{name: "metallb", version: "0.16.2", module: "go.universe.tf/metallb@v0.16.2", folder: "charts/metallb"},
	{name: "metallb-addresses", version: "0.1.0"},
	{name: "cert-manager", version: "v1.21.2", module: "github.com/cert-manager/cert-manager@v1.21.2", folder: "deploy/charts/cert-manager"},
	{name: "metrics-server", version: "3.12.2", module: "sigs.k8s.io/metrics-server@v0.8.0", folder: "charts/metrics-server"},
	{name: "gateway-api", version: "1.3.0", module: "sigs.k8s.io/gateway-api@v1.3.0", folder: "config/crd/standard", definitions: true},
	{name: "gateway", version: "0.1.1"},
	{name: "prometheus-agent", version: "0.1.0"},
	{name: "liqo", version: "v1.2.0", module: "github.com/liqotech/liqo@v1.2.0", folder: "deployments/liqo"},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./charts/addons/pack FOLDER")
		os.Exit(2)
	}
	if err := pack("charts/addons", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pack writes all archives into a folder. own is the folder of the charts that are in no module.
func pack(own, folder string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	for i := range sources {
		s := &sources[i]
		files, err := s.files(own)
		if err != nil {
			return fmt.Errorf("chart %s: %w", s.name, err)
		}
		archive, err := archived(files)
		if err != nil {
			return fmt.Errorf("chart %s: %w", s.name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, s.archive()), archive, 0o640); err != nil {
			return err
		}
	}
	return nil
}

// archive is the name of the archive.
func (s *source) archive() string { return s.name + "-" + s.version + ".tgz" }

// files returns the chart's files, by their paths in the archive.
func (s *source) files(own string) (map[string][]byte, error) {
	folder := filepath.Join(own, s.name)
	if s.module != "" {
		module, err := downloaded(s.module)
		if err != nil {
			return nil, err
		}
		folder = filepath.Join(module, filepath.FromSlash(s.folder))
	}
	files := map[string][]byte{}
	within := s.name
	if s.definitions {
		within = path.Join(s.name, "crds")
		files[path.Join(s.name, "Chart.yaml")] = fmt.Appendf(nil, "apiVersion: v2\nname: %s\nversion: %s\n", s.name, s.version)
	}
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || s.definitions && (path.Ext(entry.Name()) != ".yaml" || entry.Name() == "kustomization.yaml") {
			return err
		}
		relative, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		files[path.Join(within, filepath.ToSlash(relative))], err = os.ReadFile(file)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Projects that set the version when they release have none in the repository.
	chart := path.Join(s.name, "Chart.yaml")
	if text := files[chart]; !bytes.Contains(text, []byte("\nversion:")) {
		files[chart] = fmt.Appendf(bytes.TrimRight(text, "\n"), "\nversion: %s\nappVersion: %s\n", s.version, s.version)
	}
	return files, nil
}

// downloaded returns the folder of a module.
func downloaded(module string) (string, error) {
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = os.TempDir() // in no module
	out, err := download.Output()
	var answer struct{ Dir, Error string }
	if bad := json.Unmarshal(out, &answer); bad != nil {
		return "", fmt.Errorf("download %s: %w", module, errors.Join(err, bad))
	}
	if answer.Error != "" {
		return "", fmt.Errorf("download %s: %s", module, answer.Error)
	}
	return answer.Dir, nil
}

// archived returns the archive of files: not compressed, because compressors differ.
func archived(files map[string][]byte) ([]byte, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
