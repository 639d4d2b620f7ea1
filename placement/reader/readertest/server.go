// Package readertest has a server for external readers, which can be made to lie, hang and flood.
package readertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Server speaks every protocol of readers. It is safe for concurrent use.
type Server struct {
	Address  string
	CABundle []byte

	mu        sync.Mutex
	answer    *resourcesv1.ReadResponse
	hangs     bool
	floods    bool
	token     string
	changed   chan struct{} // closed by the next change
	reads     map[string]int
	forgotten []string
	sent      int
}

// Start starts a server that answers that there is nothing, until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	bundle, key := Certificate(t)
	certificate, err := tls.X509KeyPair(bundle, key)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{CABundle: bundle, answer: &resourcesv1.ReadResponse{}, changed: make(chan struct{}), reads: map[string]int{}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Address = listener.Addr().String()
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)), grpc.UnknownServiceHandler(s.serve))
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s
}

// Spec returns the section of a member cluster that names the server.
func (s *Server) Spec(protocol v1alpha1.ReaderProtocol) v1alpha1.ExternalReader {
	return v1alpha1.ExternalReader{Address: s.Address, Protocol: protocol, CABundle: s.CABundle, PeriodSeconds: 1}
}

// Answer changes what the server reports, and notifies all that have subscribed.
func (s *Server) Answer(answer *resourcesv1.ReadResponse) {
	s.set(func() { s.answer = answer })
}

// Has reports resources, as name and quantity in turn.
func (s *Server) Has(pairs ...string) {
	resources := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		resources[pairs[i]] = pairs[i+1]
	}
	s.Answer(&resourcesv1.ReadResponse{Resources: resources})
}

// Hang makes the server answer nothing any more, or answer again.
func (s *Server) Hang(hangs bool) { s.set(func() { s.hangs = hangs }) }

// Flood makes the server notify as fast as it can, or not.
func (s *Server) Flood(floods bool) { s.set(func() { s.floods = floods }) }

// Require makes the server refuse calls without the bearer token.
func (s *Server) Require(token string) { s.set(func() { s.token = token }) }

func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Reads returns how often a cluster was read.
func (s *Server) Reads(cluster string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[cluster]
}

// Sent returns how many notifications were sent.
func (s *Server) Sent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// Forgotten returns the clusters that were forgotten.
func (s *Server) Forgotten() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.forgotten...)
}

func (s *Server) serve(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	method := full[strings.LastIndex(full, "/")+1:]
	var request resourcesv1.ReadRequest // those of all methods are alike
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	if err := s.admit(stream.Context()); err != nil {
		return err
	}
	switch method {
	case "Read", "ReadResources":
		return s.read(stream, request.GetCluster())
	case "Subscribe":
		return s.notify(stream)
	case "Forget", "RemoveCluster":
		s.mu.Lock()
		s.forgotten = append(s.forgotten, request.GetCluster())
		s.mu.Unlock()
		return stream.SendMsg(&resourcesv1.ForgetResponse{})
	}
	return status.Error(codes.Unimplemented, full)
}

func (s *Server) admit(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	given, _ := metadata.FromIncomingContext(ctx)
	if s.token != "" && strings.Join(given.Get("authorization"), "") != "Bearer "+s.token {
		return status.Error(codes.Unauthenticated, "the token is not accepted")
	}
	return nil
}

func (s *Server) read(stream grpc.ServerStream, cluster string) error {
	s.mu.Lock()
	s.reads[cluster]++
	s.mu.Unlock()
	for {
		s.mu.Lock()
		hangs, answer, changed := s.hangs, s.answer, s.changed
		s.mu.Unlock()
		if !hangs {
			return stream.SendMsg(answer)
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

// notify sends a notification at once, and one after each change.
func (s *Server) notify(stream grpc.ServerStream) error {
	for {
		s.mu.Lock()
		floods, changed := s.floods, s.changed // before the notification, so that no change is lost
		s.sent++
		s.mu.Unlock()
		if err := stream.SendMsg(&resourcesv1.Notification{}); err != nil {
			return err
		}
		if floods {
			continue
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

// Certificate returns a certificate for 127.0.0.1, which is its own authority, and its key, in PEM.
func Certificate(t testing.TB) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "reader"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}
