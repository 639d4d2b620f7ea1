package reader_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
	"github.com/sluice-dev/sluice/placement/placementtest"
	"github.com/sluice-dev/sluice/placement/reader"
	"github.com/sluice-dev/sluice/placement/reader/readertest"
)

// lower is an inventory that is served to the platform upper, with a token, by the name eu.
type lower struct {
	*placement.Inventory
	server *grpc.Server
	spec   v1alpha1.ExternalReader
	reads  atomic.Int32 // admissions: one for each call, and for each notification that is considered
}

func serveLower(t *testing.T, protocol v1alpha1.ReaderProtocol) *lower {
	t.Helper()
	bundle, key := readertest.Certificate(t)
	certificate, err := tls.X509KeyPair(bundle, key)
	if err != nil {
		t.Fatal(err)
	}
	l := &lower{Inventory: placement.NewInventory()}
	l.server = reader.NewServer(l.Inventory, func(_ context.Context, authorization, name string) (string, labels.Selector, error) {
		l.reads.Add(1)
		switch {
		case authorization != "Bearer secret":
			return "", nil, status.Error(codes.Unauthenticated, "the token is not accepted")
		case name != "eu":
			return "upper", nil, nil
		}
		return "upper", labels.Set{v1alpha1.LabelRegion: "eu"}.AsSelector(), nil
	}, grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.server.Serve(listener) }()
	t.Cleanup(l.server.Stop)
	l.spec = v1alpha1.ExternalReader{Address: listener.Addr().String(), Protocol: protocol, CABundle: bundle}
	return l
}

// has puts a cluster with so many cores into the inventory.
func (l *lower) has(name, region string, cores int64) {
	row := placementtest.Cluster{
		Name: name, Region: region, Has: placementtest.Quantities(fmt.Sprintf("cpu=%d,memory=8Gi", cores)), Foreign: placementtest.Quantities("cpu=1"),
		Nodes: []v1alpha1.NodesFree{{Count: 1, Free: placementtest.Quantities(fmt.Sprintf("cpu=%d,memory=8Gi", cores-1))}},
	}
	l.UpsertCluster(placement.ClusterOf(row.MemberCluster(), time.Now()))
}

// TestASluiceReadsAnother: what the clusters of a Sluice sell together is pushed to another one, by each protocol, and
// what it does not read is not.
func TestASluiceReadsAnother(t *testing.T) {
	for _, protocol := range []v1alpha1.ReaderProtocol{v1alpha1.ReaderProtocolV1, v1alpha1.ReaderProtocolPaper} {
		t.Run(string(protocol), func(t *testing.T) {
			l := serveLower(t, protocol)
			l.has("a", "eu", 4)
			f := &following{T: t}
			f.External = reader.NewExternal(t.Context(), reader.ExternalOptions{
				ExternalReader: l.spec, Cluster: "eu", Period: time.Hour, // so only notifications make it read
				Token: tokenOf("secret"), Changed: func() { f.changes.Add(1) },
			})
			t.Cleanup(func() { f.Close(false) })
			f.until(4, "", "")
			if holes := f.until(4, "", "").Holes; holes == nil || len(holes.Nodes) != 1 || holes.Nodes[0].Free.Cpu().Value() != 3 || holes.Nodes[0].Count != 1 || holes.Free.Cpu().Value() != 3 {
				t.Errorf("the holes are %+v", holes)
			}
			l.has("b", "eu", 3)
			r := f.until(7, "", "")
			if holes := r.Holes; len(holes.Nodes) != 1 || holes.Nodes[0].Free.Cpu().Value() != 3 || holes.Free.Cpu().Value() != 5 { // that of b is smaller
				t.Errorf("the holes are %+v", holes)
			}
			if used := r.Foreign[corev1.ResourceCPU]; used.Value() != 2 || r.Allocatable.Memory().String() != "16Gi" {
				t.Errorf("the reading is %+v", r)
			}
			changes, considered := f.changes.Load(), l.reads.Load()
			l.has("c", "us", 9)
			f.eventually("the change elsewhere is considered", func() bool { return l.reads.Load() > considered })
			l.Reserve(placement.Holding{
				Instance: "own", Consumer: placement.Consumer{Platform: "upper"}, Held: map[string]placement.Resources{"a": {corev1.ResourceCPU: 1000}},
			})
			l.DeleteCluster("b")
			r = f.until(4, "", "")
			if used := r.Foreign[corev1.ResourceCPU]; used.Value() != 1 || f.changes.Load() > changes+2 {
				t.Errorf("after %d changes the reading is %+v", f.changes.Load()-changes, r)
			}
		})
	}
}

// TestWhoMayRead: a caller that is not known, or asks for something else, learns nothing, and its Sluice says why. One
// that goes silent is stale.
func TestWhoMayRead(t *testing.T) {
	l := serveLower(t, v1alpha1.ReaderProtocolV1)
	l.has("a", "eu", 4)
	for _, row := range []struct{ token, cluster, says string }{
		{"guessed", "eu", "Unauthenticated"}, {"", "eu", "Unauthenticated"}, {"secret", "us", `may read nothing by the name "us"`},
	} {
		f := &following{T: t}
		o := reader.ExternalOptions{ExternalReader: l.spec, Cluster: row.cluster, Period: shortly, Changed: func() {}}
		if row.token != "" {
			o.Token = tokenOf(row.token)
		}
		f.External = reader.NewExternal(t.Context(), o)
		f.until(0, reader.ReasonSyncing, row.says)
		f.Close(false)
	}
	f := follow(t, l.spec, "secret")
	f.until(4, "", "")
	l.server.Stop()
	f.until(0, reader.ReasonStale, "has been silent since")
}

// TestSubscriptionsAreBounded: a platform that subscribes again and again is refused, and one that hangs up makes room.
func TestSubscriptionsAreBounded(t *testing.T) {
	l := serveLower(t, v1alpha1.ReaderProtocolV1)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(l.spec.CABundle)
	conn, err := grpc.NewClient(l.spec.Address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	subscribe := func() (hangUp func(), err error) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret"))
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/sluice.resources.v1.Resources/Subscribe")
		if err == nil {
			err = errors.Join(stream.SendMsg(&resourcesv1.SubscribeRequest{Cluster: "eu"}), stream.CloseSend(), stream.RecvMsg(&resourcesv1.Notification{}))
		}
		return cancel, err
	}
	var last func()
	for range 16 {
		if last, err = subscribe(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := subscribe(); err == nil || !strings.Contains(fmt.Sprint(err), "has 16 subscriptions, and no more are allowed") {
		t.Errorf("one more is answered with %v", err)
	}
	last()
	(&following{T: t}).eventually("there is room", func() bool { _, err := subscribe(); return err == nil })
}

func tokenOf(token string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return token, nil }
}
