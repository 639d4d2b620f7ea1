// Package store has the archives of Helm charts: those of a folder, and of registries, from which
// they are fetched once.
package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/singleflight"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/internal/charts"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// Store has the charts of plans: files of a folder, and charts of registries. Those are fetched
// once and then kept in the folder. So a running cluster needs no registry, and a tag that is moved
// changes nothing.
//
// The registry client of the Helm library is not used: it has no context and no size limit,
// does not check the digest beside a tag, and reads the credentials of the user that runs the
// process. This uses the library below it, with Helm's media types.
type Store struct {
	// Folder with the charts; without it there are none.
	Folder string
	// Registries are the hosts (HOST or HOST:PORT) that may be asked: registries, and the hosts
	// that they redirect clients to for tokens and content.
	Registries []string
	// Credentials is a file with the registries' users and passwords, as `helm registry login`
	// writes it. It is read before each fetch. Empty means none.
	Credentials string
	// Client that sends requests to the registries, made by guarded.NewClient.
	Client *http.Client

	fetching singleflight.Group

	mu   sync.Mutex
	sums map[string]stampedSum // by the plan's name for the chart
}

const (
	// scheme of charts in registries.
	scheme = registry.OCIScheme + "://"
	// fetched is the subfolder for fetched charts. For each reference it has a link to a file
	// that is named by the digest of its content.
	fetched = ".oci"
	// fetchPatience limits how long the fetch of one chart takes, maxChart its size. Helm
	// limits the unpacked size.
	fetchPatience = time.Minute
	maxChart      = 16 << 20
)

// RefusedError means that a chart cannot be obtained until somebody changes something.
type RefusedError struct {
	// Reason with the names, for operators.
	Reason string
	// Remedy is an instruction for somebody who can correct the cause.
	Remedy string
}

func (e *RefusedError) Error() string { return e.Reason + ": " + e.Remedy }

func refused(reason, remedy string) *RefusedError {
	return &RefusedError{Reason: reason, Remedy: remedy}
}

// Load returns a chart by the plan's name for it: a copy, which the caller may change. The error is a
// *RefusedError if a retry cannot help.
func (s *Store) Load(ctx context.Context, name string) (*chart.Chart, error) {
	if s == nil || s.Folder == "" {
		return nil, noCharts
	}
	if !strings.HasPrefix(name, scheme) {
		return s.file(name)
	}
	archive, err := s.Archive(ctx, name)
	if err != nil {
		return nil, err
	}
	return unpacked(name, archive)
}

func unpacked(name string, archive []byte) (*chart.Chart, error) {
	loaded, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, refused(fmt.Sprintf("read chart %s: %v", name, err), "the plan has to name another")
	}
	return loaded, nil
}

// LoadExact does the same for a chart whose archive has a digest; an empty one means any. A chart of
// another digest is refused.
func (s *Store) LoadExact(ctx context.Context, name, digest string) (*chart.Chart, error) {
	if digest == "" {
		return s.Load(ctx, name)
	}
	archive, err := s.Archive(ctx, name)
	if err != nil {
		return nil, err
	}
	if actual := charts.Digest(archive); actual != digest {
		return nil, refused(fmt.Sprintf("the digest of chart %s is %s, not %s", name, actual, digest), "the operator has to provide the archive that the plan means, or correct the digest")
	}
	return unpacked(name, archive)
}

var noCharts = refused("this Sluice has no charts", "its operator has to start it with --charts")

// Archive returns the archive of a chart by the plan's name for it. It blocks while it fetches one,
// for a minute at most. The error is a *RefusedError if a retry cannot help; folders are refused.
func (s *Store) Archive(ctx context.Context, name string) ([]byte, error) {
	if s == nil || s.Folder == "" {
		return nil, noCharts
	}
	reference, ok := strings.CutPrefix(name, scheme)
	if !ok {
		return s.archiveFile(name)
	}
	archive, err := s.kept(reference)
	if err != nil {
		var what any
		what, err, _ = s.fetching.Do(reference, func() (any, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchPatience) // other callers wait for it too
			defer cancel()
			return s.fetch(ctx, reference)
		})
		archive, _ = what.([]byte)
	}
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", name, err)
	}
	return archive, nil
}

// path returns the path of a file or folder.
func (s *Store) path(name string) (string, os.FileInfo, error) {
	path := filepath.Join(s.Folder, name)
	info, err := os.Stat(path)
	if err != nil || filepath.Dir(name) != "." || !filepath.IsLocal(name) {
		return "", nil, refused("there is no chart "+name, "the operator has to put it into the folder of --charts")
	}
	return path, info, nil
}

// archiveFile returns the archive in a file.
func (s *Store) archiveFile(name string) ([]byte, error) {
	path, info, err := s.path(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, refused("chart "+name+" is a folder", "the operator has to put its archive into the folder of --charts (helm package)")
	case info.Size() > maxChart:
		return nil, refused(fmt.Sprintf("chart %s has %d bytes, more than the limit of %d", name, info.Size(), maxChart), "the plan has to name another")
	}
	archive, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", name, err)
	}
	return archive, nil
}

// file returns the chart in a file or folder.
func (s *Store) file(name string) (*chart.Chart, error) {
	path, _, err := s.path(name)
	if err != nil {
		return nil, err
	}
	loaded, err := loader.Load(path)
	if err != nil {
		return nil, refused(fmt.Sprintf("read chart %s: %v", name, err), "the operator has to put an undamaged archive into the folder of --charts")
	}
	return loaded, nil
}

// kept returns a chart that was fetched before. If the content does not match its digest, it is
// ignored.
func (s *Store) kept(reference string) ([]byte, error) {
	link := filepath.Join(s.Folder, fetched, filepath.FromSlash(reference))
	if !filepath.IsLocal(reference) {
		return nil, os.ErrNotExist
	}
	target, err := os.Readlink(link)
	if err != nil {
		return nil, err
	}
	archive, err := os.ReadFile(link)
	if err == nil && filepath.Base(target) != fileOf(archive) {
		err = errors.New("it was changed")
	}
	return archive, err
}

func fileOf(archive []byte) string {
	return "sha256-" + digest.FromBytes(archive).Encoded() + ".tgz"
}

// keep stores a fetched chart. A kill before the link leaves a file that nothing refers to.
func (s *Store) keep(reference string, archive []byte) error {
	folder := filepath.Join(s.Folder, fetched)
	link := filepath.Join(folder, filepath.FromSlash(reference))
	target, err := filepath.Rel(filepath.Dir(link), filepath.Join(folder, fileOf(archive)))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(folder, fileOf(archive)), archive, 0o640); err != nil {
		return err
	}
	return renameio.Symlink(target, link)
}

// fetch downloads a registry's chart, and keeps it.
func (s *Store) fetch(ctx context.Context, reference string) ([]byte, error) {
	// Tags cannot contain a plus; Helm writes an underscore instead.
	repository, err := remote.NewRepository(strings.ReplaceAll(reference, "+", "_"))
	if err != nil || repository.Reference.Reference == "" {
		return nil, refused("it does not name a version", "the plan has to name HOST/PATH:VERSION or HOST/PATH@DIGEST")
	}
	if repository.Client, err = s.client(); err != nil {
		return nil, err
	}
	_, document, err := oras.FetchBytes(ctx, repository, repository.Reference.Reference, oras.DefaultFetchBytesOptions)
	if err != nil {
		return nil, failure("fetch its manifest", err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(document, &manifest); err != nil {
		return nil, refused(fmt.Sprintf("read its manifest: %v", err), "the plan has to name another")
	}
	i := slices.IndexFunc(manifest.Layers, func(layer ocispec.Descriptor) bool { return layer.MediaType == registry.ChartLayerMediaType })
	if i < 0 {
		return nil, refused("its manifest names no chart", "the plan has to name another")
	}
	layer := manifest.Layers[i]
	if layer.Size > maxChart {
		return nil, refused(fmt.Sprintf("it has %d bytes, more than the limit of %d", layer.Size, maxChart), "the operator has to put it into the folder of --charts, as a file")
	}
	archive, err := content.FetchAll(ctx, repository, layer)
	if err != nil {
		return nil, failure("fetch its content", err)
	}
	if err := s.keep(reference, archive); err != nil {
		return nil, refused(fmt.Sprintf("keep it: %v", err), "the operator has to make the folder of --charts writable")
	}
	log.FromContext(ctx).Info("Fetched a chart", "chart", scheme+reference, "digest", layer.Digest)
	return archive, nil
}

// client returns a client that sends requests only to the registries.
func (s *Store) client() (*auth.Client, error) {
	asking := *s.Client
	asking.Timeout = 0 // the whole fetch has a timeout
	asking.CheckRedirect = nil
	asking.Transport = &allowed{s.Registries, s.Client.Transport}
	client := &auth.Client{Client: &asking, Cache: auth.NewCache()}
	client.SetUserAgent("sluice")
	if s.Credentials != "" {
		// Only the file's own credentials: no helper program is run.
		store, err := credentials.NewFileStore(s.Credentials)
		if err != nil {
			return nil, fmt.Errorf("read the credentials of registries: %w", err)
		}
		client.Credential = credentials.Credential(store)
	}
	return client, nil
}

// allowed lets requests through to listed hosts only. That includes redirects, and the token
// hosts that a registry names.
type allowed struct {
	hosts []string
	next  http.RoundTripper
}

func (a *allowed) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" || !slices.Contains(a.hosts, request.URL.Host) {
		return nil, &hostError{request.URL.Scheme + "://" + request.URL.Host}
	}
	return a.next.RoundTrip(request)
}

type hostError struct{ host string }

func (e *hostError) Error() string { return e.host + " is not among the registries that may be asked" }

// failure returns *RefusedError if a retry cannot help.
func failure(step string, err error) error {
	host, address, answer := (*hostError)(nil), (*guarded.AddressError)(nil), (*errcode.ErrorResponse)(nil)
	remedy := ""
	switch {
	case errors.As(err, &host):
		err, remedy = host, "the operator has to allow the host with --chart-registry"
	case errors.As(err, &address):
		err, remedy = address, "the operator has to allow it with --chart-registry-addresses"
	case errors.Is(err, errdef.ErrNotFound):
		remedy = "the plan has to name another"
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, errdef.ErrSizeExceedsLimit):
		remedy = "the registry's operator has to find the cause"
	case errors.Is(err, auth.ErrBasicCredentialNotFound), errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		remedy = "the operator has to give the registry's user and password with --chart-registry-credentials"
	default:
		return fmt.Errorf("%s: %w", step, err)
	}
	return refused(fmt.Sprintf("%s: %v", step, err), remedy)
}
