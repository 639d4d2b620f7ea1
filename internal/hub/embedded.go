package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-dev/sluice/charts"
)

const (
	defaultDataDir = "sluice-data"
	// startTimeout bounds the start of an embedded hub when ctx does not: long
	// enough for etcd to read gigabytes from a slow disk.
	startTimeout = 2 * time.Minute
)

// startEmbedded runs etcd and the API server in this process. If a step fails, everything
// started before it is stopped again.
func startEmbedded(ctx context.Context, o Options) (_ *Hub, err error) {
	RouteLogs(o.Logger)
	dir, err := prepareDataDir(o.DataDir)
	if err != nil {
		return nil, fmt.Errorf("start embedded hub: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	var undo stack
	defer func() {
		if err != nil {
			err = fmt.Errorf("start embedded hub in %s: %w", dir, errors.Join(err, undo.unwind()))
		}
	}()

	lock, err := lockDataDir(dir)
	if err != nil {
		return nil, err
	}
	undo.push(lock.release)
	if err := isWhole(dir); err != nil {
		return nil, err
	}

	store, err := startEtcd(ctx, dir, o.Logger)
	if err != nil {
		return nil, err
	}
	undo.push(store.stop)

	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	if err != nil {
		return nil, fmt.Errorf("listen for the API: %w", err)
	}
	api, err := startAPIServer(ctx, listener, store.endpoint)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	undo.push(api.stop)

	h := &Hub{
		Config:     api.config,
		Embedded:   true,
		Namespace:  firstOf(o.Namespace, DefaultNamespace),
		Kubeconfig: KubeconfigPath(dir),
		Database:   store.size,
		done:       make(chan error, 1),
	}
	if err := h.populate(ctx, charts.CRDs, o.moving); err != nil {
		return nil, err
	}
	if o.Prepare != nil {
		if err := o.Prepare(); err != nil {
			return nil, err
		}
	}
	if !o.moving { // then nobody else is to write to it
		if err := writeKubeconfig(h.Kubeconfig, h.Config, h.Namespace); err != nil {
			return nil, err
		}
		undo.push(func() error { return os.Remove(h.Kubeconfig) })
	}

	h.checkAnswers()
	h.supervise(store, api, &undo)
	return h, nil
}

// populate brings the definitions of an embedded hub up to date.
func (h *Hub) populate(ctx context.Context, definitions fs.FS, moving bool) error {
	crds, err := readCRDs(definitions)
	if err != nil {
		return err
	}
	outdated, err := outdatedCRDs(ctx, h.Config, crds)
	if err != nil {
		return err
	}
	if err := applyCRDs(ctx, h.Config, outdated); err != nil {
		return err
	}
	if err := backdateEstablished(ctx, h.Config, outdated); err != nil {
		return err
	}
	if err := awaitServed(ctx, h.Config, crds); err != nil {
		return err
	}
	return h.identify(ctx, moving)
}

// supervise ends the hub when Stop is called or etcd or the API server has failed.
func (h *Hub) supervise(store *etcd, api *apiServer, undo *stack) {
	stopping := make(chan struct{})
	stopped := make(chan error, 1)
	go func() {
		var failure error
		select {
		case <-stopping:
		case err := <-store.failed():
			failure = unexpectedEnd("etcd", err)
		case err := <-api.failed():
			failure = unexpectedEnd("API server", err)
		}
		err := undo.unwind()
		if err := errors.Join(failure, err); err != nil {
			h.done <- err
		}
		close(h.done)
		stopped <- err
	}()
	h.stop = func() error {
		close(stopping)
		if err := <-stopped; err != nil {
			return fmt.Errorf("stop embedded hub: %w", err)
		}
		return nil
	}
}

func unexpectedEnd(part string, err error) error {
	if err == nil {
		return fmt.Errorf("embedded hub: %s ended without being asked to", part)
	}
	return fmt.Errorf("embedded hub: %s ended: %w", part, err)
}

// prepareDataDir creates the directory and returns its absolute path. It does not change the
// mode of an existing directory, which may be the root of a volume or even a home directory.
// Secrets in it have modes of their own.
func prepareDataDir(dir string) (string, error) {
	dir, err := filepath.Abs(firstOf(dir, defaultDataDir))
	if err != nil {
		return "", fmt.Errorf("resolve the data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the data directory: %w", err)
	}
	return dir, nil
}

// stack holds the functions that undo the steps so far.
type stack []func() error

func (s *stack) push(undo func() error) { *s = append(*s, undo) }

// unwind undoes the steps, last first.
func (s *stack) unwind() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		errs = append(errs, (*s)[i]())
	}
	*s = nil
	return errors.Join(errs...)
}
