package sinks

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"golang.org/x/sync/singleflight"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// natsTarget is a subject that a stream of NATS JetStream stores.
type natsTarget struct {
	options    nats.Options
	subject    string
	connecting singleflight.Group

	mu     sync.Mutex
	now    *natsConnection // nil before the first one
	closed bool
}

// natsRemedies say what to do about errors of NATS.
var natsRemedies = []remedy{
	{nats.ErrAuthorization, "check its user and its key"},
	{nats.ErrPermissionViolation, "let this user publish to it"},
	{nats.ErrSecureConnWanted, "the server has no TLS: configure it there, or use nats:// on a private network"},
	{jetstream.ErrNoStreamResponse, "make a stream of JetStream there that has this subject"},
}

// natsConnection is a connection to one of the servers. It is not repaired: the event that is delivered next makes
// another one, after the pause that the sender makes for every kind of sink.
type natsConnection struct {
	conn *nats.Conn
	js   jetstream.JetStream
	gone context.Context // ends with the connection, and has the cause
}

func newNATS(spec *v1alpha1.EventSinkSpec, key string, by means) (target, error) {
	t := &natsTarget{subject: spec.NATS.Subject, options: nats.Options{
		Servers: spec.NATS.Servers, Name: "sluice", TLSConfig: by.reach.TLS(), CustomDialer: guarded.NewDialer(by.reach),
		Timeout: guarded.Timeout / 2, PingInterval: guarded.Timeout, MaxPingsOut: 2,
		ReconnectBufSize: -1, IgnoreDiscoveredServers: true,
	}}
	return t, natsCredentials(&t.options, spec.NATS.User, key)
}

// natsCredentials has a connection show who Sluice is.
func natsCredentials(o *nats.Options, user, key string) error {
	if user != "" {
		o.User, o.Password = user, key
		return nil
	}
	if strings.HasPrefix(key, "-----BEGIN") {
		if _, err := nkeys.ParseDecoratedUserNKey([]byte(key)); err != nil {
			return errors.New("key: is no file of credentials: want its JWT and its seed, as `nsc generate creds` prints them")
		}
		return nats.UserCredentialBytes([]byte(key))(o)
	}
	if pair, err := nkeys.FromSeed([]byte(key)); err == nil {
		public, err := pair.PublicKey()
		o.Nkey, o.SignatureCB = public, pair.Sign
		return err
	}
	o.Token = key
	return nil
}

// deliver publishes an event until the stream has acknowledged it.
func (t *natsTarget) deliver(ctx context.Context, e cloudevents.Event, encoded []byte) error {
	c, err := t.connection(ctx)
	if err != nil {
		return failed("connect to NATS", err, natsRemedies)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.gone, cancel)()
	message := &nats.Msg{Subject: t.subject, Data: encoded, Header: nats.Header{"Content-Type": {contentType}}}
	_, err = c.js.PublishMsg(ctx, message, jetstream.WithMsgID(e.ID()), jetstream.WithRetryAttempts(0))
	if err != nil && c.gone.Err() != nil {
		err = context.Cause(c.gone)
	}
	if err != nil {
		return failed("publish to the subject "+t.subject, err, natsRemedies)
	}
	return nil
}

// connection returns the connection, or makes one. Deliveries that want one at the same time wait for the same.
func (t *natsTarget) connection(ctx context.Context) (*natsConnection, error) {
	if now := t.standing(); now != nil {
		return now, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case made := <-t.connecting.DoChan("", t.connect):
		if made.Err != nil {
			return nil, made.Err
		}
		return made.Val.(*natsConnection), nil
	}
}

// standing returns the connection, while there is one.
func (t *natsTarget) standing() *natsConnection {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil && t.now.gone.Err() == nil {
		return t.now
	}
	return nil
}

// connect makes a connection, unless another call has just made one.
func (t *natsTarget) connect() (any, error) {
	if now := t.standing(); now != nil {
		return now, nil
	}
	gone, end := context.WithCancelCause(context.Background())
	options := t.options
	options.ClosedCB = func(c *nats.Conn) { end(cmp.Or(c.LastError(), nats.ErrConnectionClosed)) }
	options.AsyncErrorCB = func(c *nats.Conn, _ *nats.Subscription, err error) {
		end(err)
		c.Close()
	}
	conn, err := options.Connect()
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil || t.closed {
		conn.Close()
		return nil, cmp.Or(err, nats.ErrConnectionClosed)
	}
	t.now = &natsConnection{conn: conn, js: js, gone: gone}
	return t.now, nil
}

func (t *natsTarget) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.now != nil {
		t.now.conn.Close()
	}
}
