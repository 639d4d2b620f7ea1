package sinks_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// fakeTopic is a topic of franz-go's fake of Kafka, with TLS and three partitions.
type fakeTopic struct {
	gate *gate
	ca   string

	mu  sync.Mutex
	got []cloudevents.Event
}

const topic = "sluice-events"

// newFakeTopic starts a fake broker that is reached through a gate. The user sluice has the password "pass".
func newFakeTopic(w *world, more ...kfake.Opt) *fakeTopic {
	w.Helper()
	certificate, ca := newCertificate()
	f := &fakeTopic{gate: newGate(w), ca: ca}
	broker, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.SeedTopics(3, topic), kfake.TLS(certificate),
		kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "sluice", "pass"), kfake.Superuser("SCRAM-SHA-256", "sluice", "pass"), kfake.Superuser("PLAIN", "sluice", "pass"),
		kfake.ListenFn(func(string, string) (net.Listener, error) { return behind{broker, f.gate}, nil }),
	}, more...)...)
	w.must(err)
	go f.gate.relay(broker.Addr().String())
	reader, err := kgo.NewClient(kgo.SeedBrokers(f.gate.Addr().String()), kgo.ConsumeTopics(topic), kgo.SASL(scram.Auth{User: "sluice", Pass: "pass"}.AsSha512Mechanism()),
		kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) { // not through the gate
			return (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, network, broker.Addr().String())
		}))
	w.must(err)
	var reading sync.WaitGroup
	reading.Go(func() { f.read(w, reader) })
	w.Cleanup(func() {
		reader.Close()
		reading.Wait()
		cluster.Close()
	})
	return f
}

// behind is a listener that says the address of a gate instead of its own, which is the one that a broker tells its
// clients.
type behind struct {
	net.Listener
	gate *gate
}

func (b behind) Addr() net.Addr { return b.gate.Addr() }

// read reads the topic until the client is closed.
func (f *fakeTopic) read(w *world, reader *kgo.Client) {
	partitions := map[string]int32{} // by key
	for {
		fetched := reader.PollFetches(context.Background())
		if fetched.IsClientClosed() {
			return
		}
		fetched.EachRecord(func(r *kgo.Record) {
			var e cloudevents.Event
			if err := json.Unmarshal(r.Value, &e); err != nil || e.Validate() != nil {
				w.Errorf("%s: %v %v", r.Value, err, e.Validate())
				return
			}
			partition, known := partitions[string(r.Key)]
			mode := kgo.RecordHeader{Key: "content-type", Value: []byte("application/cloudevents+json; charset=utf-8")}
			isStructured := slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == mode.Key && string(h.Value) == string(mode.Value) })
			if string(r.Key) != e.Extensions()["partitionkey"] || known && partition != r.Partition || !isStructured {
				w.Errorf("the topic has key %s in partitions %d and %d, headers %v", r.Key, partition, r.Partition, r.Headers)
			}
			partitions[string(r.Key)] = r.Partition
			f.mu.Lock()
			defer f.mu.Unlock()
			f.got = append(f.got, e)
		})
	}
}

func (f *fakeTopic) describe(spec *v1alpha1.EventSinkSpec) {
	spec.Kafka = &v1alpha1.EventSinkKafka{Brokers: []string{f.gate.Addr().String()}, Topic: topic, User: "sluice"}
	spec.CABundle = f.ca
}

func (f *fakeTopic) network() *gate { return f.gate }

func (f *fakeTopic) stored() []cloudevents.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

// TestKafka: the ways to show Kafka who Sluice is, and what a sink says that the brokers do not let in.
func TestKafka(t *testing.T) {
	t.Parallel()
	with := func(mechanism string) func(*v1alpha1.EventSinkSpec) {
		return func(s *v1alpha1.EventSinkSpec) { s.Kafka.Mechanism = mechanism }
	}
	for name, row := range map[string]struct {
		broker []kfake.Opt
		key    string
		change func(*v1alpha1.EventSinkSpec)
		says   string // empty: it accepts events
	}{
		"PLAIN":             {nil, "pass", with("PLAIN"), ""},
		"SCRAM-SHA-256":     {nil, "pass", with("SCRAM-SHA-256"), ""},
		"wrong password":    {nil, "word", with("PLAIN"), "check its user, its mechanism and its key"},
		"password of whom?": {nil, "pass", func(s *v1alpha1.EventSinkSpec) { s.Kafka.User = "" }, "key: is a password of nobody: name the user too"},
		"no topic": {nil, "pass", func(s *v1alpha1.EventSinkSpec) { s.Kafka.Topic = "other" },
			"produce to the topic other: UNKNOWN_TOPIC_OR_PARTITION: This server does not host this topic-partition.: make the topic there"},
		"no right to write": {[]kfake.Opt{kfake.EnableACLs(), kfake.User("PLAIN", "stranger", "pass")}, "pass", func(s *v1alpha1.EventSinkSpec) {
			s.Kafka.User, s.Kafka.Mechanism = "stranger", "PLAIN"
		}, "let this user write"},
		"unknown certificate": {nil, "pass", func(s *v1alpha1.EventSinkSpec) { s.CABundle = "" }, "certificate signed by unknown authority"},
		"nobody there": {nil, "pass", func(s *v1alpha1.EventSinkSpec) { s.Kafka.Brokers = []string{"127.0.0.1:1"} },
			"connect to Kafka: unable to dial: dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f := newFakeTopic(w, row.broker...)
			w.lets(f, row.key, row.change, row.says)
		})
	}
}
