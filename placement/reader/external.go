package reader

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/wait"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// quiet is the least time between two reads, and between two notifications that are taken from a
	// stream. The rest of a flood waits at its sender (flow control of HTTP/2).
	quiet = 100 * time.Millisecond
	// patience bounds one call.
	patience = 5 * time.Second
	// mostBytes bounds a message.
	mostBytes = 64 << 10
	// longestDelay bounds the time until the connection is opened again, and so do the tolerated periods: a reader
	// that would soon be stale is not left alone for longer.
	longestDelay = 30 * time.Second
	// tolerated is the number of periods without an answer after which a reader is stale.
	tolerated = 3
)

// methods are the names of a protocol's methods. The messages of all protocols are the same on the wire.
type methods struct{ read, subscribe, forget string }

var protocols = map[v1alpha1.ReaderProtocol]methods{
	v1alpha1.ReaderProtocolV1:    {"/sluice.resources.v1.Resources/Read", "/sluice.resources.v1.Resources/Subscribe", "/sluice.resources.v1.Resources/Forget"},
	v1alpha1.ReaderProtocolPaper: {"/resource_reader/ReadResources", "/resource_reader/Subscribe", "/resource_reader/RemoveCluster"},
}

// External is the reader of a server outside Sluice, over gRPC. It keeps one connection, which it opens again
// with growing delays. It reads once a period and after each notification of the server, never more often than
// every 100 ms, and at most 64 KiB at a time.
type External struct {
	options ExternalOptions
	methods methods
	stop    context.CancelFunc
	ended   chan struct{}
	first   chan struct{} // closed with the first answer

	mu      sync.Mutex
	answer  *resourcesv1.ReadResponse
	reading Reading
	at      time.Time // of the last valid answer
	lie     error     // why the last answer is not valid; nil if it is
	failure error     // of the last call
}

// ExternalOptions configure External.
type ExternalOptions struct {
	v1alpha1.ExternalReader
	// Cluster is the name of the member cluster.
	Cluster string
	// Token returns the bearer token for the server; nil if there is none.
	Token func(context.Context) (string, error)
	// Period between two reads without a notification; zero means that of the spec.
	Period time.Duration
	// Changed is called after changes; it must not block.
	Changed func()
}

// NewExternal returns a reader that asks the server until it is closed, or the context ends.
func NewExternal(ctx context.Context, o ExternalOptions) *External {
	if o.Period == 0 {
		o.Period = o.ExternalReader.Period()
	}
	ctx, stop := context.WithCancel(ctx)
	e := &External{options: o, methods: protocols[o.ProtocolName()], stop: stop, ended: make(chan struct{}), first: make(chan struct{})}
	go e.follow(ctx)
	return e
}

// Read returns the last answer of the server. The error says that there is none yet, that the last one was
// not valid, or that the server has been silent for three periods.
func (e *External) Read(context.Context) (Reading, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	unknown := func(reason, format string, args ...any) (Reading, error) {
		message := fmt.Sprintf("its reader at %s ", e.options.Address) + fmt.Sprintf(format, args...)
		if e.failure != nil && reason != ReasonInvalid {
			message += ": " + e.failure.Error()
		}
		return Reading{}, &UnknownError{reason, message}
	}
	switch {
	case e.lie != nil:
		return unknown(ReasonInvalid, "gives an answer that is not valid: %v", e.lie)
	case e.at.IsZero():
		return unknown(ReasonSyncing, "has not answered yet")
	case time.Since(e.at) > tolerated*e.options.Period:
		return unknown(ReasonStale, "has been silent since %s", e.at.UTC().Format(time.RFC3339))
	}
	return e.reading, nil
}

// Wait blocks until the server has answered once, validly or not, or the context ends.
func (e *External) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-e.first:
	}
}

// Close ends the connection. If the cluster leaves the inventory, it also tells the server, as far as that
// answers, without waiting for it.
func (e *External) Close(leaves bool) {
	e.stop()
	if leaves {
		go e.forget()
	}
}

func (e *External) forget() {
	<-e.ended
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := e.dial(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.Invoke(ctx, e.methods.forget, &resourcesv1.ForgetRequest{Cluster: e.options.Cluster}, &resourcesv1.ForgetResponse{})
}

// follow keeps a session with the server, until the context ends.
func (e *External) follow(ctx context.Context) {
	defer close(e.ended)
	most := min(longestDelay, tolerated*e.options.Period)
	fresh := wait.Backoff{Duration: min(time.Second, most), Factor: 2, Jitter: 0.5, Steps: 6, Cap: most}
	delay := fresh
	for ctx.Err() == nil {
		answered, err := e.session(ctx)
		if answered {
			delay = fresh
		}
		e.mu.Lock()
		e.failure = err
		e.mu.Unlock()
		sleep(ctx, delay.Step())
	}
}

// session connects, subscribes, and reads, until something fails. answered reports whether the server has
// answered at all.
func (e *External) session(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := e.dial(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	changed, unsubscribed := make(chan struct{}, 1), make(chan error, 1)
	go func() { unsubscribed <- e.subscribe(ctx, conn, changed) }()
	period := time.NewTicker(e.options.Period)
	defer period.Stop()
	for {
		if err := e.ask(ctx, conn); err != nil {
			return answered, err
		}
		answered = true
		sleep(ctx, quiet)
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case err := <-unsubscribed:
			if status.Code(err) != codes.Unimplemented {
				return true, fmt.Errorf("subscribe: %w", err)
			}
			unsubscribed = nil // it is only polled
		case <-changed:
		case <-period.C:
		}
	}
}

// subscribe passes on notifications, until the stream ends.
func (e *External) subscribe(ctx context.Context, conn *grpc.ClientConn, changed chan<- struct{}) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, e.methods.subscribe)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&resourcesv1.SubscribeRequest{Cluster: e.options.Cluster}); err != nil && !errors.Is(err, io.EOF) {
		return err // after io.EOF, RecvMsg has the error
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := stream.RecvMsg(&resourcesv1.Notification{}); err != nil {
			return err
		}
		select {
		case changed <- struct{}{}:
		default:
		}
		sleep(ctx, quiet)
	}
	return ctx.Err()
}

// ask reads once. An answer that is not valid is no failure of the call.
func (e *External) ask(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, min(patience, e.options.Period))
	defer cancel()
	answer := &resourcesv1.ReadResponse{}
	if err := conn.Invoke(ctx, e.methods.read, &resourcesv1.ReadRequest{Cluster: e.options.Cluster}, answer); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	e.mu.Lock()
	news := e.answer == nil || !proto.Equal(e.answer, answer) || time.Since(e.at) > tolerated*e.options.Period
	if news {
		e.reading, e.lie = readingOf(answer)
		e.reading.Source = fmt.Sprintf("read from %s (%s)", e.options.Address, e.options.ProtocolName())
	}
	e.answer, e.failure = answer, nil
	if e.lie == nil {
		e.at = time.Now()
	}
	e.mu.Unlock()
	select {
	case <-e.first:
	default:
		close(e.first)
	}
	if news {
		e.options.Changed()
	}
	return nil
}

// sleep waits for a time, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
