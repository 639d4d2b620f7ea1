package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/reader"
)

// mostReaders is how many connections readers of resources may have open.
const mostReaders = 256

// resourcesListener serves what the inventory sells over gRPC, to platforms that may read it, once the inventory is
// filled. It runs on the replica that leads, because only that one's inventory is.
type resourcesListener struct {
	address, certificate, key string

	platforms *broker.Platforms
	inventory *placement.Inventory
	filled    chan struct{}
}

func (l *resourcesListener) bind(flags *pflag.FlagSet) {
	flags.StringVar(&l.address, "resources-listen", "", "address at which platforms read what clusters sell, over gRPC (sluice.resources.v1); empty disables it")
	flags.StringVar(&l.certificate, "resources-tls-cert", "", "certificate file of --resources-listen; read again when it changes (default: --tls-cert)")
	flags.StringVar(&l.key, "resources-tls-key", "", "key file of --resources-tls-cert (default: --tls-key)")
}

// add adds the listener to the manager if it has an address. filled is to be called when the inventory is filled.
func (l *resourcesListener) add(mgr ctrl.Manager, osb *listener, platforms *broker.Platforms, inventory *placement.Inventory) (filled func(), err error) {
	if l.address == "" {
		return func() {}, nil
	}
	l.certificate, l.key = cmp.Or(l.certificate, osb.certificate), cmp.Or(l.key, osb.key)
	if l.certificate == "" || l.key == "" {
		return nil, errors.New("--resources-listen needs --resources-tls-cert and --resources-tls-key, because tokens are sent to it")
	}
	l.platforms, l.inventory, l.filled = platforms, inventory, make(chan struct{})
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

// admit is reader.Admit, by the platforms file.
func (l *resourcesListener) admit(authorization, name string) (platform string, clusters labels.Selector) {
	known, ok := l.platforms.Authenticate(&http.Request{Header: http.Header{"Authorization": {authorization}}})
	if !ok {
		return "", nil
	}
	return known.Name, known.Reads[name]
}
