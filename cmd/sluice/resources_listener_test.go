package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	clocktesting "k8s.io/utils/clock/testing"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/broker"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/reader"
)

// TestReadersThatGuessAreSlowed: an address that sends too many wrong tokens to --resources-listen has to wait, also with
// a right one that it has not sent before; other addresses do not.
func TestReadersThatGuessAreSlowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "platforms.yaml")
	if err := os.WriteFile(file, []byte("platforms:\n- {name: first, bearer: [right, late], reads: {fleet: \"\"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	platforms, err := broker.LoadPlatforms(file)
	if err != nil {
		t.Fatal(err)
	}
	now := clocktesting.NewFakePassiveClock(time.Now())
	l := &resourcesListener{authenticate: platforms.Guarded(now), logged: &rate.Sometimes{First: refusalsLogged}, inventory: placement.NewInventory()}
	server := reader.NewServer(l.inventory, l.admit)
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(server.Stop)
	dial := func(from string) func(token string) error {
		t.Helper()
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := grpc.NewClient(socket.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", to) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return func(token string) error {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
			return conn.Invoke(ctx, "/sluice.resources.v1.Resources/Read", &resourcesv1.ReadRequest{Cluster: "fleet"}, &resourcesv1.ReadResponse{})
		}
	}
	guesser, other := dial("127.0.0.1"), dial("127.0.0.2")
	want := func(code codes.Code, err error) {
		t.Helper()
		if status.Code(err) != code {
			t.Errorf("%v, want %s", err, code)
		}
	}
	want(codes.OK, guesser("right"))
	for range 20 {
		want(codes.Unauthenticated, guesser("wrong"))
	}
	err = guesser("wrong")
	want(codes.ResourceExhausted, err)
	if !strings.Contains(status.Convert(err).Message(), "try again in 1s") {
		t.Errorf("it says %v", err)
	}
	want(codes.ResourceExhausted, guesser("late"))
	want(codes.OK, guesser("right"))
	want(codes.OK, other("late"))
	want(codes.Unauthenticated, other("wrong"))
	now.SetTime(now.Now().Add(time.Second))
	want(codes.OK, guesser("late"))
}
