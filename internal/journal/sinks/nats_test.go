package sinks_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// stream is a NATS server with TLS, and a stream of JetStream in it.
type stream struct {
	w      *world
	server *server.Server
	gate   *gate
	ca     string
	stream jetstream.Stream
	reader nats.Option // shows who reads the stream

	mu  sync.Mutex
	got []cloudevents.Event
	ids map[string]bool
}

const subject = "sluice.events"

// newStream starts a server that is reached through a gate. The user sluice has the password "pass".
func newStream(w *world, change func(*server.Options)) *stream {
	w.Helper()
	certificate, ca := newCertificate()
	s := &stream{w: w, ids: map[string]bool{}, ca: ca, reader: nats.UserInfo("reader", "reads")}
	options := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: w.TempDir(),
		TLS: true, TLSConfig: certificate,
		Users: []*server.User{{Username: "sluice", Password: "pass"}, {Username: "reader", Password: "reads"}},
	}
	if change != nil {
		change(options)
	}
	var err error
	s.server, err = server.NewServer(options)
	w.must(err)
	s.server.Start()
	w.Cleanup(func() {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	})
	if !s.server.ReadyForConnections(patience) {
		w.Fatal("the NATS server does not start")
	}
	s.gate = newGate(w)
	go s.gate.relay(s.server.Addr().String())
	return s
}

func (s *stream) describe(spec *v1alpha1.EventSinkSpec) {
	spec.NATS = &v1alpha1.EventSinkNATS{Servers: []string{"tls://" + s.gate.Addr().String()}, Subject: subject, User: "sluice"}
	spec.CABundle = s.ca
	s.store()
}

// store makes the stream, unless there is one already.
func (s *stream) store() {
	s.w.Helper()
	conn, err := nats.Connect("", nats.InProcessServer(s.server), s.reader, func(o *nats.Options) error {
		o.TLSConfig = &tls.Config{InsecureSkipVerify: true} // nothing is between them
		return nil
	})
	s.w.must(err)
	s.w.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	s.w.must(err)
	s.stream, err = js.CreateStream(s.w.Context(), jetstream.StreamConfig{Name: "events", Subjects: []string{"sluice.>"}})
	s.w.must(err)
}

func (s *stream) network() *gate { return s.gate }

func (s *stream) stored() []cloudevents.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		message, err := s.stream.GetMsg(s.w.Context(), uint64(len(s.got)+1))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return s.got
		}
		s.w.must(err)
		var e cloudevents.Event
		s.w.must(json.Unmarshal(message.Data, &e))
		s.w.must(e.Validate())
		if id := message.Header.Get(nats.MsgIdHdr); id != e.ID() || s.ids[id] || message.Subject != subject || message.Header.Get("Content-Type") != "application/cloudevents+json; charset=utf-8" {
			s.w.Errorf("the stream has %s %v, stored before: %t", message.Subject, message.Header, s.ids[id])
		}
		s.ids[e.ID()] = true
		s.got = append(s.got, e)
	}
}

// TestNATSCredentials: a server that trusts an operator lets Sluice in with the file of credentials of a user.
func TestNATSCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pair := func(pair nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		w.must(err)
		public, err := pair.PublicKey()
		w.must(err)
		return pair, public
	}
	operator, operatorKey := pair(nkeys.CreateOperator())
	account, accountKey := pair(nkeys.CreateAccount())
	_, systemKey := pair(nkeys.CreateAccount())
	user, userKey := pair(nkeys.CreateUser())
	accounts := &server.MemAccResolver{}
	for _, key := range []string{accountKey, systemKey} {
		claims := jwt.NewAccountClaims(key)
		if key == accountKey {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
		}
		signed, err := claims.Encode(operator)
		w.must(err)
		w.must(accounts.Store(key, signed))
	}
	signed, err := jwt.NewUserClaims(userKey).Encode(account)
	w.must(err)
	seed, err := user.Seed()
	w.must(err)
	credentials, err := jwt.FormatUserConfig(signed, seed)
	w.must(err)
	s := newStream(w, func(o *server.Options) {
		o.Users, o.TrustedKeys, o.AccountResolver, o.SystemAccount = nil, []string{operatorKey}, accounts, systemKey
	})
	s.reader = nats.UserCredentialBytes(credentials)
	w.add(s, string(credentials), func(s *v1alpha1.EventSinkSpec) { s.NATS.User = "" })
	w.order("cf", "one")
	w.gets(s, instance("one", "ordered")...)
}

// TestNATS: the ways to show a NATS server who Sluice is, and what a sink says that the server does not let in.
func TestNATS(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	other, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := pair.Seed()
	otherSeed, _ := other.Seed()
	public, _ := pair.PublicKey()
	withKey := func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }
	noUser := func(s *v1alpha1.EventSinkSpec) { s.NATS.User = "" }
	for name, row := range map[string]struct {
		server func(*server.Options)
		key    string
		change func(*v1alpha1.EventSinkSpec)
		says   string // empty: it accepts events
	}{
		"password":       {nil, "pass", nil, ""},
		"wrong password": {nil, "word", nil, "connect to NATS: nats: Authorization Violation: check its user and its key"},
		"NKey":           {withKey, string(seed), noUser, ""},
		"unknown NKey":   {withKey, string(otherSeed), noUser, "check its user and its key"},
		"a token":        {nil, "token", noUser, "check its user and its key"},
		"half a file of credentials": {nil, "-----BEGIN NATS USER JWT-----\n", noUser,
			"key: is no file of credentials: want its JWT and its seed"},
		"no right to publish": {func(o *server.Options) {
			o.Users[0].Permissions = &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"sluice.>"}}}
		}, "pass", nil, `let this user publish to it`},
		"no stream": {nil, "pass", func(s *v1alpha1.EventSinkSpec) { s.NATS.Subject = "other" },
			"publish to the subject other: nats: no response from stream: make a stream of JetStream there that has this subject"},
		"unknown certificate": {nil, "pass", func(s *v1alpha1.EventSinkSpec) { s.CABundle = "" }, "certificate signed by unknown authority"},
		"no TLS":              {func(o *server.Options) { o.TLS, o.TLSConfig = false, nil }, "pass", nil, "the server has no TLS"},
		"nobody there": {nil, "pass", func(s *v1alpha1.EventSinkSpec) { s.NATS.Servers = []string{"tls://127.0.0.1:1"} },
			"connect to NATS: nats: no servers available for connection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := newStream(w, row.server)
			w.lets(s, row.key, row.change, row.says)
		})
	}
}
