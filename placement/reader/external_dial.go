package reader

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// dial prepares a connection to the server, over TLS with a verified certificate.
func (e *External) dial(ctx context.Context) (*grpc.ClientConn, error) {
	secured := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.options.ServerName}
	if len(e.options.CABundle) > 0 {
		if secured.RootCAs = x509.NewCertPool(); !secured.RootCAs.AppendCertsFromPEM(e.options.CABundle) {
			return nil, errors.New("caBundle holds no certificate in PEM")
		}
	}
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
