package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/reader"
)

// mostReaders is how many connections readers of resources may have open.
const mostReaders = 256

// refusalsLogged is how many refused readers are logged one by one; after that, one a second is logged.
const refusalsLogged = 20

// resourcesListener serves what the inventory sells over gRPC, to platforms that may read it, once the inventory is
// filled. It runs on the replica that leads, because only that one's inventory is.
type resourcesListener struct {
	address, certificate, key string

	authenticate func(*http.Request) (*broker.Platform, error)
	inventory    *placement.Inventory
	filled       chan struct{}
	logged       *rate.Sometimes // refusals
}

func (l *resourcesListener) bind(flags *pflag.FlagSet) {
	flags.StringVar(&l.address, "resources-listen", "", "address at which platforms read what clusters sell, over gRPC (sluice.resources.v1); empty disables it")
	flags.StringVar(&l.certificate, "resources-tls-cert", "", "certificate file of --resources-listen; read again when it changes (default: --tls-cert)")
	flags.StringVar(&l.key, "resources-tls-key", "", "key file of --resources-tls-cert (default: --tls-key)")
}

// check returns an error if the flags, or the files that they name, cannot be used. What they do not name is that of the
// listener of the OSB API.
func (l *resourcesListener) check(osb *listener) error {
	if l.address == "" {
		return nil
	}
	l.certificate, l.key = cmp.Or(l.certificate, osb.certificate), cmp.Or(l.key, osb.key)
	if l.certificate == "" || l.key == "" {
		return errors.New("--resources-listen needs --resources-tls-cert and --resources-tls-key, because tokens are sent to it")
	}
	if _, err := tls.LoadX509KeyPair(l.certificate, l.key); err != nil {
		return fmt.Errorf("--resources-tls-cert, --resources-tls-key: %w", err)
	}
	return nil
}

// add adds the listener to the manager if it has an address. filled is to be called when the inventory is filled.
func (l *resourcesListener) add(mgr ctrl.Manager, platforms *broker.Platforms, inventory *placement.Inventory) (filled func(), err error) {
	if l.address == "" {
		return func() {}, nil
	}
	l.authenticate, l.inventory, l.filled = platforms.Guarded(clock.RealClock{}), inventory, make(chan struct{})
	l.logged = &rate.Sometimes{First: refusalsLogged, Interval: time.Second}
	return sync.OnceFunc(func() { close(l.filled) }), mgr.Add(l)
}

// Start serves until ctx ends.
func (l *resourcesListener) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.filled:
	}
	secured, err := (&listener{certificate: l.certificate, key: l.key}).tls(ctx) // readers have tokens, and no certificates
	if err != nil {
		return err
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("--resources-listen: %w", err)
	}
	server := reader.NewServer(l.inventory, l.admit, grpc.Creds(credentials.NewTLS(secured)))
	go func() {
		<-ctx.Done()
		server.Stop() // subscriptions have no end of their own
	}()
	if err := server.Serve(netutil.LimitListener(socket, mostReaders)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve resources: %w", err)
	}
	return nil
}

// admit is reader.Admit, by the platforms file. It refuses addresses that have sent too many wrong tokens.
func (l *resourcesListener) admit(ctx context.Context, authorization, name string) (platform string, clusters labels.Selector, err error) {
	r := (&http.Request{Header: http.Header{"Authorization": {authorization}}}).WithContext(ctx)
	if from, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = from.Addr.String()
	}
	known, err := l.authenticate(r)
	if err != nil {
		refusal := refusalOf(err)
		l.logged.Do(func() {
			slog.Info("refused a reader of resources", "from", callers.Address(r), "code", refusal.Code().String(), "reason", err) // it quotes no credentials
		})
		return "", nil, refusal.Err()
	}
	return known.Name, known.Reads[name], nil
}

// refusalOf returns the status of gRPC for an error of broker.Platforms.Guarded.
func refusalOf(err error) *status.Status {
	refused := (*broker.Error)(nil)
	if !errors.As(err, &refused) {
		return status.New(codes.Internal, "the token cannot be checked")
	}
	switch refused.Status {
	case http.StatusTooManyRequests:
		return status.Newf(codes.ResourceExhausted, "too many wrong tokens came from this address: try again in %ds", callers.Seconds(refused.RetryAfter))
	case http.StatusServiceUnavailable:
		return status.New(codes.Unavailable, refused.Description)
	default:
		return status.New(codes.Unauthenticated, "the token is not accepted")
	}
}
