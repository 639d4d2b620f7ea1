package reader

import (
	"context"
	"crypto/tls"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sluice-dev/sluice/internal/guarded"
)

// dial prepares a connection to the server, over TLS with a verified certificate.
func (e *External) dial(ctx context.Context) (*grpc.ClientConn, error) {
	roots, err := guarded.ParseRoots(e.options.CABundle)
	if err != nil {
		return nil, err
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.options.ServerName, RootCAs: roots}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(secured)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostBytes)),
		grpc.WithMaxHeaderListSize(mostBytes),
		// Fixed windows bound what a server can make Sluice buffer.
		grpc.WithStaticStreamWindowSize(mostBytes), grpc.WithStaticConnWindowSize(2 * mostBytes),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	}
	if e.options.Token != nil {
		token, err := e.options.Token(ctx)
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	return grpc.NewClient("dns:///"+e.options.Address, options...)
}

// bearer is a token that is sent with each call, over TLS only.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }
