package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/chart/v2"
)

// made makes a release of a small program, with the charts, in a new folder.
func made(t *testing.T, change func(*release)) (*release, error) {
	t.Helper()
	r := &release{version: "v1.2.3", source: "..", program: "./release/testdata/program", platforms: released, uncommitted: true, out: filepath.Join(t.TempDir(), "release")}
	out := r.out
	if change != nil {
		change(r)
	}
	err := r.make(t.Context())
	r.out = out
	return r, err
}

func mustMake(t *testing.T, change func(*release)) *release {
	t.Helper()
	r, err := made(t, change)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// contents are the files of a release by their names.
func contents(t *testing.T, r *release) map[string]string {
	t.Helper()
	files, err := r.files()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		content, err := os.ReadFile(r.path(file))
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(content)
	}
	return all
}

// unpacked are the files in an archive by their names.
func unpacked(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	zipped, err := gzip.NewReader(r)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for in := tar.NewReader(zipped); ; {
		header, err := in.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all[header.Name] = string(content)
	}
}

// TestRelease: two releases of one commit are the same files. All of them are in the checksums, which are signed; the
// binary runs, the charts load, and the image that was pushed has each platform's binary.
func TestRelease(t *testing.T) {
	key, keyFile := signer(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/sluice"
	signed := func(r *release) { r.key, r.push = keyFile, repository }
	one := mustMake(t, signed)
	files, again := contents(t, one), contents(t, mustMake(t, signed)) // the second is pushed over the first
	for file, content := range files {
		if file != signatureFile && again[file] != content {
			t.Errorf("%s differs between two builds", file)
		}
	}
	if len(again) != len(files) || len(files) < 4+4+2+5+3 {
		t.Errorf("there are %d files, and %d", len(files), len(again))
	}
	sum := sha256.Sum256([]byte(files[sumsFile]))
	if !ecdsa.VerifyASN1(&key.PublicKey, sum[:], []byte(files[signatureFile])) {
		t.Error("the signature is not that of the checksums")
	}
	check := exec.Command("sha256sum", "--check", "--strict", sumsFile)
	check.Dir = one.out
	if output, err := check.CombinedOutput(); err != nil || strings.Count(string(output), "OK") != len(files)-2 {
		t.Errorf("sha256sum: %v\n%s", err, output)
	}
	var said statement
	if err := json.Unmarshal([]byte(files[provenanceFile]), &said); err != nil || len(said.Subject) != len(files)-3+1 || len(said.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"]) != 40 {
		t.Errorf("the provenance is %v, %s", err, files[provenanceFile])
	}
	runs(t, files)
	charted(t, files)
	pulled(t, repository, files)
}

// signer makes a key for signatures, and returns it with its file.
func signer(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "release.key")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, path
}

// runs checks that the binary of this machine's platform knows its version.
func runs(t *testing.T, files map[string]string) {
	t.Helper()
	here := platform{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(released, here) {
		t.Skipf("no release for %s", here)
	}
	program := filepath.Join(t.TempDir(), "program")
	in := unpacked(t, strings.NewReader(files["sluice-1.2.3-"+here.String()+".tar.gz"]))
	if err := os.WriteFile(program, []byte(in["sluice"]), 0o755); err != nil || in["LICENSE"] == "" {
		t.Fatal(err, len(in))
	}
	if output, err := exec.Command(program).CombinedOutput(); err != nil || strings.TrimSpace(string(output)) != "1.2.3" {
		t.Errorf("the binary prints %q, %v", output, err)
	}
}

// charted checks that Helm reads the charts, with the version of the release and all definitions.
func charted(t *testing.T, files map[string]string) {
	t.Helper()
	for chart, definitions := range map[string]int{"sluice": 10, "claims": 2} {
		loaded, err := loader.LoadArchive(strings.NewReader(files[chart+"-1.2.3.tgz"]))
		if err != nil {
			t.Fatal(err)
		}
		c := loaded.(*v2.Chart)
		if c.Metadata.Name != chart || c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "1.2.3" || len(c.CRDObjects()) < definitions || len(c.Schema) == 0 {
			t.Errorf("the chart is %+v with %d definitions", c.Metadata, len(c.CRDObjects()))
		}
	}
}

// pulled checks what was pushed: the image for each platform, and the charts.
func pulled(t *testing.T, repository string, files map[string]string) {
	t.Helper()
	tag, err := name.NewTag(repository + ":1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: architecture}))
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.Architecture != architecture || config.Config.User != user || config.Config.Entrypoint[0] != "/sluice" {
			t.Errorf("the image for %s has %+v, %v", architecture, config, err)
		}
		layers, err := image.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("%d layers, %v", len(layers), err)
		}
		content, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		binary := unpacked(t, strings.NewReader(files["sluice-1.2.3-linux-"+architecture+".tar.gz"]))["sluice"]
		if got := unpacked(t, content); len(got) != 1 || got["sluice"] != binary {
			t.Errorf("the image for %s has %d files, and not the binary", architecture, len(got))
		}
	}
	for _, chart := range charts {
		pulledChart(t, repository, chart, files)
	}
}

// pulledChart checks that a chart was pushed as Helm looks for it.
func pulledChart(t *testing.T, repository, chart string, files map[string]string) {
	t.Helper()
	tag, err := name.NewTag(repository + "/charts/" + chart + ":1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	artifact, err := remote.Get(tag)
	if err != nil {
		t.Fatal(err)
	}
	var manifest v1.Manifest
	if err := json.Unmarshal(artifact.Manifest, &manifest); err != nil || manifest.Config.MediaType != chartConfig || manifest.Layers[0].MediaType != chartContent {
		t.Fatalf("the chart's manifest is %s, %v", artifact.Manifest, err)
	}
	layer, err := remote.Layer(tag.Digest(manifest.Layers[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	packed, err := io.ReadAll(content)
	if err != nil || string(packed) != files[chart+"-1.2.3.tgz"] {
		t.Errorf("the registry has another chart %s, %v", chart, err)
	}
}

// TestBill: the SBOM has the modules that are linked, with their checksums.
func TestBill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := cdx.NewBOMEncoder(&written, cdx.BOMFileFormatJSON).Encode(billOf(info, "1.2.3", "00")); err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&written, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	found := map[string]cdx.Component{}
	for _, component := range *bom.Components {
		found[component.Name] = component
	}
	registry := found["github.com/google/go-containerregistry"]
	if len(found) != len(info.Deps)+1 || registry.Version == "" || registry.PackageURL != "pkg:golang/github.com/google/go-containerregistry@"+registry.Version {
		t.Errorf("of %d modules %d are listed, one as %+v", len(info.Deps)+1, len(found), registry)
	}
	if (*registry.Properties)[0].Value == "" || len(*(*bom.Dependencies)[0].Dependencies) != len(found) {
		t.Errorf("it is without a checksum, or nothing needs it: %+v", registry)
	}
}

func TestRefusals(t *testing.T) {
	_, key := signer(t)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	only := func(r *release) { r.platforms = []platform{{"linux", runtime.GOARCH}} }
	for says, change := range map[string]func(*release){
		"want a semantic version": func(r *release) { r.version = "next" },
		"exists: remove it":       func(r *release) { r.out = t.TempDir() },
		"build for":               func(r *release) { r.program = "./release/testdata" },
		"chmod 600":               func(r *release) { r.key = key },
		"want PEM":                func(r *release) { r.key = emptyKey(t) },
	} {
		r, err := made(t, func(r *release) { only(r); change(r) })
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(r.out), "*")); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	}
}

func emptyKey(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty.key")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAVersionIsReleasedOnce: a tag that has another content is not replaced.
func TestAVersionIsReleasedOnce(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository := strings.TrimPrefix(server.URL, "http://") + "/sluice"
	mustMake(t, func(r *release) { r.platforms, r.push = released[:1], repository })
	_, err := made(t, func(r *release) { r.platforms, r.push = released[:2], repository })
	if err == nil || !strings.Contains(err.Error(), "a version is released once") {
		t.Errorf("another release of the same version: %v", err)
	}
}
