package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// build builds the binary for each platform, and writes its archive and SBOM.
func (r *release) build(ctx context.Context) error {
	licence, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	for _, p := range r.platforms {
		fmt.Printf("release: building for %s\n", p)
		program := r.binary(p)
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
			"-ldflags", "-s -w -buildid= -X main.version="+r.version, "-o", program, r.program)
		command.Dir = r.source
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+p.os, "GOARCH="+p.arch)
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("build for %s: %w\n%s", p, err, output)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		err = archive(r.path(r.named(p, ".tar.gz")), []entry{{"LICENSE", licence, 0o644}, {"sluice", content, 0o755}})
		if err := errors.Join(err, r.bill(p, program)); err != nil {
			return err
		}
	}
	return nil
}

// binary returns the path of the binary for a platform.
func (r *release) binary(p platform) string {
	program, err := filepath.Abs(r.path("programs", p.String()))
	if err != nil {
		return r.path("programs", p.String())
	}
	return program
}

// bill writes the SBOM of a binary.
func (r *release) bill(p platform, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read what is in %s: %w", p, err)
	}
	sum, err := digest(program)
	if err != nil {
		return err
	}
	var written bytes.Buffer
	encoder := cdx.NewBOMEncoder(&written, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(billOf(info, r.version, sum)); err != nil {
		return fmt.Errorf("write the SBOM of %s: %w", p, err)
	}
	return os.WriteFile(r.path(r.named(p, ".cdx.json")), written.Bytes(), 0o644)
}

// billOf returns the SBOM of a binary by its build information: its modules, and Go's standard library.
func billOf(info *buildinfo.BuildInfo, version, sum string) *cdx.BOM {
	self := "pkg:golang/" + info.Main.Path + "@v" + version
	modules := []cdx.Component{{
		BOMRef: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"), Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		url := "pkg:golang/" + module.Path + "@" + module.Version
		modules = append(modules, cdx.Component{
			BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: url,
			Properties: &[]cdx.Property{{Name: "go:sum", Value: module.Sum}},
		})
	}
	var needs []string
	for _, module := range modules {
		needs = append(needs, module.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: self, Type: cdx.ComponentTypeApplication, Name: "sluice", Version: version, PackageURL: self,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
	}}
	bom.Components = &modules
	bom.Dependencies = &[]cdx.Dependency{{Ref: self, Dependencies: &needs}}
	return bom
}

// entry is a file in an archive.
type entry struct {
	name    string
	content []byte
	mode    int64
}

// archive writes a gzipped tar of entries, which belong to root and have no times.
func archive(path string, entries []entry) error {
	var written bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&written, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := errors.Join(pack(zipped, entries), zipped.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, written.Bytes(), 0o644)
}

// pack writes a tar of entries, in the order of their names.
func pack(w io.Writer, entries []entry) error {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	out := tar.NewWriter(w)
	for _, e := range entries {
		err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(e.content)), Mode: e.mode, Format: tar.FormatPAX})
		if err != nil {
			return err
		}
		if _, err := out.Write(e.content); err != nil {
			return err
		}
	}
	return out.Close()
}
