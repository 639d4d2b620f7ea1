package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// release is a release that is being made.
type release struct {
	// version of Sluice, a semantic one.
	version string
	// out is the folder that it is written to.
	out string
	// source is the root of the module, and program the package of the binary in it.
	source, program string
	platforms       []platform
	// key is the path of a private key that signs the checksums; empty if there is none.
	key string
	// uncommitted allows changes that no commit has, in tests.
	uncommitted bool
	// push is the repository that image and charts are pushed to; empty if there is none.
	push string
}

// platform is an operating system and an architecture, in the words of Go.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

// released are the platforms of a release.
var released = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

func main() {
	r := &release{source: ".", program: "./cmd/sluice", platforms: released}
	flag.StringVar(&r.version, "version", "", "version of the release, for instance 0.2.0")
	flag.StringVar(&r.out, "out", "bin/release", "folder that it is written to; must not exist")
	flag.StringVar(&r.key, "key", "", "file with a private key (ECDSA, PKCS #8, PEM) that signs the checksums")
	flag.StringVar(&r.push, "push", "", "repository that the image and, below it, the charts are pushed to, for instance registry.example/sluice")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.make(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// make writes all files of the release. They come to their folder in one step.
func (r *release) make(ctx context.Context) (err error) {
	r.version = strings.TrimPrefix(r.version, "v")
	if _, err := version.ParseSemantic(r.version); err != nil {
		return fmt.Errorf("-version %q: want a semantic version, for instance 0.2.0: %w", r.version, err)
	}
	if _, err := os.Stat(r.out); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("-out %s: exists: remove it, or name another folder", r.out), err)
	}
	final := r.out
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return err
	}
	if r.out, err = os.MkdirTemp(filepath.Dir(final), ".release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.out)) }()
	if err := errors.Join(os.Chmod(r.out, 0o755), r.build(ctx)); err != nil {
		return err
	}
	index, err := r.image()
	if err != nil {
		return err
	}
	for _, chart := range charts {
		if err := r.pack(chart); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(r.path("programs")); err != nil {
		return err
	}
	if err := r.provenance(ctx, index); err != nil {
		return err
	}
	if err := r.sums(); err != nil {
		return err
	}
	if r.push != "" {
		if err := r.publish(ctx, index); err != nil {
			return err
		}
	}
	if err := os.Rename(r.out, final); err != nil {
		return err
	}
	fmt.Printf("release: %s is in %s\n", r.version, final)
	return nil
}

func (r *release) path(parts ...string) string {
	return filepath.Join(append([]string{r.out}, parts...)...)
}

// named returns the name of a file of one platform.
func (r *release) named(p platform, suffix string) string {
	return fmt.Sprintf("sluice-%s-%s%s", r.version, p, suffix)
}

// files returns the paths of all files of the release, relative to its folder, in the order of their names.
func (r *release) files() (paths []string, err error) {
	err = filepath.WalkDir(r.out, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(r.out, path)
		paths = append(paths, filepath.ToSlash(relative))
		return err
	})
	return paths, err
}

// digest returns the SHA-256 of a file, in hexadecimal.
func digest(path string) (string, error) {
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}
