package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the binary in a container, as in test/kind/image.sh.
const user = "65532:65532"

// image writes the image for the Linux platforms as an OCI image layout: the binary, FROM scratch.
func (r *release) image() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.imageOf(p)
		if err != nil {
			return nil, fmt.Errorf("make the image for %s: %w", p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	to, err := layout.Write(r.path("image"), empty.Index)
	if err != nil {
		return nil, fmt.Errorf("write the image: %w", err)
	}
	err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}))
	if err != nil {
		return nil, fmt.Errorf("write the image: %w", err)
	}
	return index, nil
}

func (r *release) imageOf(p platform) (v1.Image, error) {
	content, err := os.ReadFile(r.binary(p))
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	if err := pack(&packed, []entry{{"sluice", content, 0o755}}); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer}); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, withConfig(image, p, v1.Config{
		Entrypoint: []string{"/sluice"}, User: user,
		Labels: map[string]string{"org.opencontainers.image.title": "sluice", "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0"},
	}))
}

// withConfig returns the configuration of an image with a platform.
func withConfig(image v1.Image, p platform, config v1.Config) *v1.ConfigFile {
	file, err := image.ConfigFile()
	if err != nil {
		file = &v1.ConfigFile{}
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = p.os, p.arch, config
	return file
}

// Media types of Helm charts in registries.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// publish pushes the image as REPOSITORY:VERSION and each chart as REPOSITORY/charts/NAME:VERSION, with the credentials
// of docker login. What is there already under these tags is replaced only by the same.
func (r *release) publish(ctx context.Context, index v1.ImageIndex) error {
	tag, err := name.NewTag(r.push + ":" + r.version)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := isFree(tag, index, options); err != nil {
		return err
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return fmt.Errorf("push the image: %w", err)
	}
	fmt.Printf("release: pushed %s\n", tag)
	for _, chart := range charts {
		if err := r.publishChart(chart, options); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) publishChart(chart string, options []remote.Option) error {
	content, err := os.ReadFile(r.chartFile(chart))
	if err != nil {
		return err
	}
	metadata, err := r.chartMetadata(chart)
	if err != nil {
		return err
	}
	packed, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(content, chartContent)})
	if err != nil {
		return err
	}
	at, err := name.NewTag(r.push + "/charts/" + chart + ":" + r.version)
	if err != nil {
		return fmt.Errorf("-push: %w", err)
	}
	artifact := &chartImage{Image: packed, config: metadata}
	if err := isFree(at, artifact, options); err != nil {
		return err
	}
	if err := remote.Write(at, artifact, options...); err != nil {
		return fmt.Errorf("push the chart %s: %w", chart, err)
	}
	fmt.Printf("release: pushed oci://%s\n", at)
	return nil
}

// isFree returns an error if a tag is there already, with another content.
func isFree(tag name.Tag, of interface{ Digest() (v1.Hash, error) }, options []remote.Option) error {
	there, err := remote.Head(tag, options...)
	if err != nil {
		return nil // it is not there, or the push says what is wrong
	}
	want, err := of.Digest()
	if err == nil && want != there.Digest {
		err = fmt.Errorf("%s is there already, as %s and not as %s: a version is released once", tag, there.Digest, want)
	}
	return err
}
