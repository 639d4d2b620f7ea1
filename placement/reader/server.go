package reader

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/placement"
)

const (
	// mostSubscriptions bounds those of one platform, mostStreams the calls on one connection.
	mostSubscriptions, mostStreams = 16, 32
	// silence is the time after which a connection is probed, and closed if it does not answer.
	silence = 30 * time.Second
)

// server is the other side of External: it reports what clusters of this Sluice sell together to readers elsewhere,
// by all protocols. A platform reads what Admit lets it read. Notifications follow changes of the inventory, at most
// ten a second for each subscription; one that changes nothing of what is read is not sent.
type server struct {
	inventory *placement.Inventory
	admit     Admit

	mu            sync.Mutex
	subscriptions map[string]int // by platform
}

// Admit returns the platform of a call, by its header Authorization, and the clusters that it may read by a name; nil for
// a name that the platform may not read. The context is that of the call. The error, a status of gRPC, is the answer to a
// caller that is refused.
type Admit func(ctx context.Context, authorization, name string) (platform string, clusters labels.Selector, err error)

// NewServer returns a gRPC server of what an inventory sells. Options are added to its own, which bound what a caller
// can make it hold; the caller sets the credentials.
func NewServer(inventory *placement.Inventory, admit Admit, options ...grpc.ServerOption) *grpc.Server {
	s := &server{inventory: inventory, admit: admit, subscriptions: map[string]int{}}
	listening := grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxConcurrentStreams(mostStreams), grpc.MaxRecvMsgSize(mostBytes), grpc.MaxHeaderListSize(mostBytes),
		grpc.StaticStreamWindowSize(mostBytes), grpc.StaticConnWindowSize(2 * mostBytes), grpc.ConnectionTimeout(patience),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: silence, Timeout: patience}),
	}, options...)...)
	for _, m := range protocols {
		listening.RegisterService(s.service(m), s)
	}
	return listening
}

// service describes the methods of a protocol.
func (s *server) service(m methods) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: path.Base(path.Dir(m.read)), HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: path.Base(m.read), Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				asked := &resourcesv1.ReadRequest{}
				if err := decode(asked); err != nil {
					return nil, err
				}
				_, answer, err := s.read(ctx, asked.GetCluster())
				return answer, err
			}},
			{MethodName: path.Base(m.forget), Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				return &resourcesv1.ForgetResponse{}, decode(&resourcesv1.ForgetRequest{}) // nothing was kept
			}},
		},
		Streams: []grpc.StreamDesc{{StreamName: path.Base(m.subscribe), ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			asked := &resourcesv1.SubscribeRequest{}
			if err := stream.RecvMsg(asked); err != nil {
				return err
			}
			return s.notify(stream, asked.GetCluster())
		}}},
	}
}

// read returns the platform that calls, and what the clusters of a name sell together.
func (s *server) read(ctx context.Context, name string) (platform string, answer *resourcesv1.ReadResponse, err error) {
	given, _ := metadata.FromIncomingContext(ctx)
	platform, clusters, err := s.admit(ctx, strings.Join(given.Get("authorization"), ","), name)
	switch {
	case err != nil:
		return "", nil, err
	case clusters == nil:
		return "", nil, status.Errorf(codes.NotFound, "platform %s may read nothing by the name %s: the platforms file lists such names under reads", platform, quoted(name))
	}
	if answer, err = answerOf(s.inventory.Snapshot().Fleet(clusters, platform)); err != nil {
		return "", nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	return platform, answer, nil
}

// notify sends a notification at once, and one after each change of what is read, until the caller hangs up or is not
// admitted any more.
func (s *server) notify(stream grpc.ServerStream, name string) error {
	var told *resourcesv1.ReadResponse
	for {
		changed := s.inventory.Changed() // before the sum, so that no change is lost
		platform, answer, err := s.read(stream.Context(), name)
		if err != nil {
			return err
		}
		if told == nil {
			if !s.subscribe(platform) {
				return status.Errorf(codes.ResourceExhausted, "platform %s has %d subscriptions, and no more are allowed", platform, mostSubscriptions)
			}
			defer s.unsubscribe(platform)
		}
		if told == nil || !proto.Equal(told, answer) {
			if err := stream.SendMsg(&resourcesv1.Notification{}); err != nil {
				return err
			}
			told = answer
		}
		sleep(stream.Context(), quiet)
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

func (s *server) subscribe(platform string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscriptions[platform] == mostSubscriptions {
		return false
	}
	s.subscriptions[platform]++
	return true
}

func (s *server) unsubscribe(platform string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscriptions[platform]--; s.subscriptions[platform] == 0 {
		delete(s.subscriptions, platform)
	}
}

// answerOf returns what readingOf takes. Amounts above its limits are reported as the limits.
func answerOf(f placement.Fleet) (*resourcesv1.ReadResponse, error) {
	if len(f.Sold) > mostNames || len(f.StorageClasses) > mostNames {
		return nil, fmt.Errorf("the clusters have %d resources and %d storage classes together, and at most %d may be reported: let it read fewer clusters", len(f.Sold), len(f.StorageClasses), mostNames)
	}
	answer := &resourcesv1.ReadResponse{
		Resources: textsOf(f.Sold.List()), Used: textsOf(f.Used.List()), StorageClasses: f.StorageClasses,
		Architectures: f.Architectures, OperatingSystems: f.OperatingSystems,
	}
	if f.Holes != nil {
		holes := f.Holes.API()
		answer.Holes = &resourcesv1.Holes{Free: textsOf(holes.Free)}
		for _, nodes := range holes.Nodes {
			answer.Holes.Nodes = append(answer.Holes.Nodes, &resourcesv1.NodesFree{Count: nodes.Count, Free: textsOf(nodes.Free)})
		}
	}
	return answer, nil
}

func textsOf(amounts corev1.ResourceList) map[string]string {
	texts := make(map[string]string, len(amounts))
	for name, amount := range amounts {
		if most := resource.NewQuantity(mostOf(name), resource.DecimalSI); amount.Cmp(*most) > 0 {
			amount = *most
		}
		texts[string(name)] = amount.String()
	}
	return texts
}

// mostOf returns the largest amount of a resource in an answer.
func mostOf(name corev1.ResourceName) int64 {
	if name == corev1.ResourceCPU {
		return mostCores
	}
	return mostUnits
}
