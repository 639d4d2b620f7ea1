package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"sigs.k8s.io/yaml"
)

// charts are the names of the Helm charts that are released, and of their folders below charts in the source.
var charts = []string{"sluice", "claims"}

// chartFile returns the path of a packed chart.
func (r *release) chartFile(chart string) string { return r.path(chart + "-" + r.version + ".tgz") }

// pack packs a chart with the version of the release.
func (r *release) pack(chart string) error {
	root := filepath.Join(r.source, "charts", chart)
	var entries []entry
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if relative == "Chart.yaml" && err == nil {
			content, err = r.versioned(chart)
		}
		entries = append(entries, entry{chart + "/" + filepath.ToSlash(relative), content, 0o644})
		return err
	})
	if err != nil {
		return fmt.Errorf("pack the chart %s: %w", chart, err)
	}
	return archive(r.chartFile(chart), entries)
}

// versioned returns Chart.yaml with the version of the release, for the chart and for what it installs.
func (r *release) versioned(chart string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(r.source, "charts", chart, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := yaml.Unmarshal(content, &fields); err != nil {
		return nil, fmt.Errorf("read Chart.yaml: %w", err)
	}
	fields["version"], fields["appVersion"] = r.version, r.version
	return yaml.Marshal(fields)
}

// chartMetadata returns Chart.yaml as JSON, which is the configuration of a chart in a registry.
func (r *release) chartMetadata(chart string) ([]byte, error) {
	content, err := r.versioned(chart)
	if err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(content)
}

// chartImage is a chart as an image: its one layer with the metadata as configuration.
type chartImage struct {
	v1.Image
	config []byte
}

func (c *chartImage) RawConfigFile() ([]byte, error)      { return c.config, nil }
func (c *chartImage) ConfigName() (v1.Hash, error)        { return partial.ConfigName(c) }
func (c *chartImage) Digest() (v1.Hash, error)            { return partial.Digest(c) }
func (c *chartImage) Size() (int64, error)                { return partial.Size(c) }
func (c *chartImage) ConfigFile() (*v1.ConfigFile, error) { return &v1.ConfigFile{}, nil }

// Manifest returns the manifest of the layer, with the metadata.
func (c *chartImage) Manifest() (*v1.Manifest, error) {
	manifest, err := c.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	hash, size, err := v1.SHA256(bytes.NewReader(c.config))
	manifest.Config = v1.Descriptor{MediaType: chartConfig, Size: size, Digest: hash}
	return manifest, err
}

func (c *chartImage) RawManifest() ([]byte, error) {
	manifest, err := c.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifest)
}
