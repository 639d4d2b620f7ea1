package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"github.com/sluice-dev/sluice/internal/callers"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// listener serves the OSB API over HTTP, or HTTPS with files that are read again when they
// change.
type listener struct {
	address, certificate, key, clientCA string
	mostConnections                     int
	// longest is the greatest duration of an answer.
	longest time.Duration

	handler http.Handler
	// ready reports whether requests can be answered. Until then the port is closed: a platform
	// treats a refused connection as an outage, but a refused order as a final answer.
	ready func() bool
	// ending is called when no more requests are taken; nil does nothing. It ends the answers that would not end.
	ending func()
}

func (l *listener) bind(flags *pflag.FlagSet) {
	flags.StringVar(&l.address, "listen", "127.0.0.1:8080", "address of the OSB API")
	flags.StringVar(&l.certificate, "tls-cert", "", "certificate file, to serve HTTPS; read again when it changes")
	flags.StringVar(&l.key, "tls-key", "", "key file of --tls-cert")
	flags.IntVar(&l.mostConnections, "max-connections", 0, "how many connections to --listen may be open; 0 means half of the open files that the process may have, at most 4096")
	flags.StringVar(&l.clientCA, "tls-client-ca", "", "CA file; clients must present a certificate that it signed")
}

// isSecure reports whether it serves HTTPS.
func (l *listener) isSecure() bool { return l.certificate != "" || l.key != "" }

// check returns an error if the flags, or the files that they name, cannot be used.
func (l *listener) check() error {
	if l.isSecure() {
		if _, err := tls.LoadX509KeyPair(l.certificate, l.key); err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
	} else if l.clientCA != "" {
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
	}
	if l.clientCA == "" {
		return nil
	}
	_, err := readCertificates(l.clientCA)
	return err
}

// Start serves until ctx ends. It then lets running requests finish, for as long as a
// platform may wait for a bind.
func (l *listener) Start(ctx context.Context) error {
	server := &http.Server{
		Addr:              l.address,
		Handler:           l.handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      max(l.longest, time.Minute) + 20*time.Second, // counts from the end of the header
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return l.ready(), nil })
	if err != nil {
		return nil // ctx ended before it began
	}
	accepted, err := (&net.ListenConfig{}).Listen(ctx, "tcp", l.address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	socket := callers.NewConnections(l.mostConnections).Limit(server, accepted.(*net.TCPListener))
	if l.isSecure() {
		if server.TLSConfig, err = l.tls(ctx); err != nil {
			return err
		}
		socket = tls.NewListener(socket, server.TLSConfig)
	}

	slog.Info("serving the OSB API", "address", accepted.Addr().String(), "tls", l.isSecure())
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		slog.Info("stopping; requests that are under way are answered first")
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(l.longest, time.Minute))
		defer cancel()
		ended := make(chan struct{})
		server.RegisterOnShutdown(func() {
			defer close(ended)
			if l.ending != nil {
				l.ending()
			}
		})
		err := server.Shutdown(patience)
		<-ended
		stopped <- err
	}()
	if err := server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the OSB API: %w", err)
	}
	return <-stopped
}

// tls returns a configuration that reloads the certificate when it changes, and the client
// CA at each handshake.
func (l *listener) tls(ctx context.Context) (*tls.Config, error) {
	watcher, err := certwatcher.New(l.certificate, l.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	go func() { _ = watcher.Start(ctx) }()
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate, NextProtos: []string{"h2", "http/1.1"}}
	if l.clientCA == "" {
		return config, nil
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		authorities, err := readCertificates(l.clientCA)
		if err != nil {
			return nil, err
		}
		mutual := config.Clone()
		mutual.GetConfigForClient, mutual.ClientCAs, mutual.ClientAuth = nil, authorities, tls.RequireAndVerifyClientCert
		return mutual, nil
	}
	return config, nil
}

func readCertificates(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	authorities, err := guarded.ParseCertificates(data)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %s %w", file, err)
	}
	return authorities, nil
}
