package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/sluice-dev/sluice/internal/secretfile"
)

// Files that say what the others are.
const (
	provenanceFile = "provenance.json"
	sumsFile       = "SHA256SUMS"
	signatureFile  = "SHA256SUMS.sig"
)

// Types of the provenance: in-toto Statement v1, SLSA Provenance v1. The type of the build is this program.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = "https://sluice.dev/make-release/v1"
)

// subject is a file or image with its digest, in a statement.
type subject struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

// statement is an in-toto statement with SLSA provenance.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string         `json:"buildType"`
			ExternalParameters   map[string]any `json:"externalParameters"`
			ResolvedDependencies []subject      `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID      string            `json:"id"`
				Version map[string]string `json:"version"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// provenance writes of which commit, and how, the files were built.
func (r *release) provenance(ctx context.Context, index v1.ImageIndex) error {
	s := statement{Type: statementType, PredicateType: predicateType}
	files, err := r.files()
	if err != nil {
		return err
	}
	for _, file := range files {
		sum, err := digest(r.path(file))
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, subject{Name: file, Digest: map[string]string{"sha256": sum}})
	}
	image, err := index.Digest()
	if err != nil {
		return err
	}
	s.Subject = append(s.Subject, subject{Name: "image", Digest: map[string]string{image.Algorithm: image.Hex}})
	commit, err := r.commit(ctx)
	if err != nil {
		return err
	}
	var platforms []string
	for _, p := range r.platforms {
		platforms = append(platforms, p.String())
	}
	build := &s.Predicate.BuildDefinition
	build.BuildType = buildType
	build.ExternalParameters = map[string]any{"version": r.version, "program": r.program, "platforms": platforms}
	build.ResolvedDependencies = []subject{{URI: "git+https://github.com/sluice-dev/sluice", Digest: map[string]string{"gitCommit": commit}}}
	s.Predicate.RunDetails.Builder.ID = buildType
	s.Predicate.RunDetails.Builder.Version = map[string]string{"go": runtime.Version()}
	written, err := json.MarshalIndent(&s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(provenanceFile), append(written, '\n'), 0o644)
}

// commit returns the commit of the source, and refuses changes that it does not have: nobody could build the release again.
func (r *release) commit(ctx context.Context) (string, error) {
	git := func(args ...string) (string, error) {
		command := exec.CommandContext(ctx, "git", args...)
		command.Dir = r.source
		output, err := command.Output()
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			err = fmt.Errorf("git %s: %w: %s", args[0], err, failed.Stderr)
		}
		return strings.TrimSpace(string(output)), err
	}
	changed, err := git("status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changed != "" && !r.uncommitted {
		return "", fmt.Errorf("the source has changes that are not committed, so nobody could build this release again:\n%s", changed)
	}
	return git("rev-parse", "HEAD")
}

// sums writes the checksums of all files, and their signature.
func (r *release) sums() error {
	files, err := r.files()
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, file := range files {
		sum, err := digest(r.path(file))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, file)
	}
	if err := os.WriteFile(r.path(sumsFile), []byte(lines.String()), 0o644); err != nil || r.key == "" {
		return err
	}
	signature, err := r.sign([]byte(lines.String()))
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(signatureFile), signature, 0o644)
}

// sign signs a text as `openssl dgst -sha256 -sign` does.
func (r *release) sign(text []byte) ([]byte, error) {
	content, err := secretfile.Read(r.key)
	if err != nil {
		return nil, fmt.Errorf("-key: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("-key %s: want PEM, as `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` makes it", r.key)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, is := parsed.(*ecdsa.PrivateKey)
	if err != nil || !is { // the cause may quote the file
		return nil, fmt.Errorf("-key %s: want an ECDSA key in PKCS #8, as `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` makes it", r.key)
	}
	sum := sha256.Sum256(text)
	return ecdsa.SignASN1(rand.Reader, key, sum[:])
}
