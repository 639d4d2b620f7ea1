package hub

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
)

const (
	// quotaBytes is the size of the database beyond which etcd accepts no more
	// writes: the largest that etcd recommends.
	quotaBytes = 8 << 30
	// defragThresholdMegabytes is how much free space in the database file makes
	// etcd shrink it at start.
	defragThresholdMegabytes = 256
	// maxSocketPath is the longest path of a Unix socket, on every system that
	// has them.
	maxSocketPath = 103
)

// etcd is a running single-member etcd.
type etcd struct {
	server *embed.Etcd
	// endpoint is the URL of the socket on which it answers.
	endpoint  string
	socketDir string // to be removed; empty when the sockets are in etcd's directory
}

// startEtcd runs etcd below the data directory dir and returns when it can
// serve. It listens on Unix sockets only, in a directory that nobody else may
// enter.
func startEtcd(ctx context.Context, dir string, logger *slog.Logger) (*etcd, error) {
	dir, err := privateDirectory(dir, etcdDir)
	if err != nil {
		return nil, err
	}
	socketDir, temporary, err := socketDirectory(dir)
	if err != nil {
		return nil, err
	}
	e := &etcd{}
	if temporary {
		e.socketDir = socketDir
	}
	config := etcdConfig(dir, socketDir, logger)
	e.endpoint = config.ListenClientUrls[0].String()
	e.server, err = embed.StartEtcd(config)
	if err != nil {
		e.removeSockets()
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.server.Server.ReadyNotify():
		return e, nil
	case err = <-e.server.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.server.Close()
	e.removeSockets()
	return nil, fmt.Errorf("wait for etcd: %w", err)
}

func etcdConfig(dir, socketDir string, logger *slog.Logger) *embed.Config {
	config := embed.NewConfig()
	config.Name = "hub"
	config.Dir = dir

	// gRPC and HTTP get a socket each: sharing one makes etcd serve gRPC through
	// net/http, which is slower, and warn about it.
	socket := url.URL{Scheme: "unix", Path: filepath.Join(socketDir, "grpc.sock")}
	config.ListenClientUrls = []url.URL{socket}
	config.AdvertiseClientUrls = []url.URL{socket}
	config.ListenClientHttpUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(socketDir, "http.sock")}}
	// There are no peers to listen to. The advertised peer URL is only a name: it
	// goes into the member's identity, so it must never change.
	config.ListenPeerUrls = nil
	config.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	// A single member only ever waits for itself: a short election timeout saves
	// most of a second at each start and costs nothing.
	config.TickMs = 50
	config.ElectionMs = 250

	// Log entries kept for followers are memory wasted without followers.
	config.SnapshotCount = 5000
	config.SnapshotCatchUpEntries = 100

	// Nobody logs in to etcd: the socket is the protection.
	config.AuthToken = ""

	// Old revisions are compacted by the API server, every five minutes.
	config.QuotaBackendBytes = quotaBytes
	config.BootstrapDefragThresholdMegabytes = defragThresholdMegabytes

	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapOver(logger.With("component", "etcd")))
	return config
}

// privateDirectory creates the named directory below dir with mode 0700: the sockets in it have
// no other protection.
func privateDirectory(dir, name string) (string, error) {
	dir = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create a private directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // a directory needs its x bit
		return "", fmt.Errorf("make a directory private: %w", err)
	}
	return dir, nil
}

// socketDirectory returns etcd's directory if the paths of sockets in it are short enough, and
// otherwise a temporary directory with the same protection.
func socketDirectory(dir string) (_ string, temporary bool, _ error) {
	if len(filepath.Join(dir, "grpc.sock")) <= maxSocketPath {
		return dir, false, nil
	}
	short, err := os.MkdirTemp("", "sluice-hub-")
	if err != nil {
		return "", false, fmt.Errorf("make a directory for sockets: %w", err)
	}
	return short, true, nil
}

// failed receives the error that ended etcd.
func (e *etcd) failed() <-chan error { return e.server.Err() }

// size returns the bytes of the database, and the most that it may have.
func (e *etcd) size() (bytes, quota int64) { return e.server.Server.Backend().Size(), quotaBytes }

// stop closes the database. It blocks for as long as that takes.
func (e *etcd) stop() error {
	e.server.Close()
	e.removeSockets()
	return nil
}

// batchBytes is about the size of a transaction; etcd refuses those of more than 1.5 MB.
const batchBytes = 256 << 10

// batch writes many values in few transactions.
type batch struct {
	store *etcd
	puts  []*pb.RequestOp
	bytes int
}

// put adds a value, and writes those before it if they are enough.
func (b *batch) put(ctx context.Context, key string, value []byte) error {
	if b.bytes > 0 && b.bytes+len(value) > batchBytes {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.puts = append(b.puts, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: value}}})
	b.bytes += len(key) + len(value)
	return nil
}

// flush writes what was added.
func (b *batch) flush(ctx context.Context) error {
	if len(b.puts) == 0 {
		return nil
	}
	_, err := b.store.server.Server.Txn(ctx, &pb.TxnRequest{Success: b.puts})
	b.puts, b.bytes = nil, 0
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	return nil
}

func (e *etcd) removeSockets() {
	if e.socketDir != "" {
		_ = os.RemoveAll(e.socketDir) // an empty directory in the temporary one at worst
	}
}
