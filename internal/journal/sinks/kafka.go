package sinks

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// kafkaTarget is a topic of Kafka.
type kafkaTarget struct {
	client *kgo.Client
	topic  string

	mu      sync.Mutex
	failure error // of the last attempt to connect to a broker
}

// kafkaRemedies say what to do about errors of Kafka.
var kafkaRemedies = []remedy{
	{kerr.UnknownTopicOrPartition, "make the topic there"},
	{kerr.SaslAuthenticationFailed, "check its user, its mechanism and its key"},
	{io.EOF, "they close the connection: check its user, its mechanism and its key, and whether they have TLS"},
	{kerr.UnsupportedSaslMechanism, "give it the mechanism that the brokers have"},
	{kerr.TopicAuthorizationFailed, "let this user write to it"},
	{kerr.ClusterAuthorizationFailed, "let this user write idempotently"},
}

func newKafka(spec *v1alpha1.EventSinkSpec, key string, by means) (target, error) {
	t := &kafkaTarget{topic: spec.Kafka.Topic}
	dial := guarded.NewDialer(by.reach).DialContext
	if !spec.Kafka.Plaintext {
		dial = (&tls.Dialer{NetDialer: guarded.NewDialer(by.reach), Config: by.reach.TLS()}).DialContext
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(spec.Kafka.Brokers...), kgo.ClientID("sluice"), kgo.DefaultProduceTopic(t.topic), kgo.Dialer(dial), kgo.WithHooks(t),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MaxBufferedRecords(concurrency), kgo.ProducerLinger(0),
		// An event whose time is up is sent again by the sender, which does not wait for what became of it.
		kgo.AllowIdempotentProduceCancellation(), kgo.UnknownTopicRetries(1), kgo.MetadataMinAge(time.Second),
	}
	if user := spec.Kafka.User; user != "" {
		mechanism := map[string]func() sasl.Mechanism{
			"PLAIN":         plain.Auth{User: user, Pass: key}.AsMechanism,
			"SCRAM-SHA-256": scram.Auth{User: user, Pass: key}.AsSha256Mechanism,
			"SCRAM-SHA-512": scram.Auth{User: user, Pass: key}.AsSha512Mechanism,
			"":              scram.Auth{User: user, Pass: key}.AsSha512Mechanism,
		}[spec.Kafka.Mechanism]
		options = append(options, kgo.SASL(mechanism()))
	} else if key != "" {
		return nil, errors.New("key: is a password of nobody: name the user too")
	}
	var err error
	t.client, err = kgo.NewClient(options...)
	return t, err
}

// OnBrokerConnect implements kgo.HookBrokerConnect: the client tries again until an event's time is up, and says then
// only that it is.
func (t *kafkaTarget) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = err
}

// deliver produces an event until all replicas that are in sync have it. Its key is the partition key of CloudEvents, as
// their binding for Kafka has it, so that the events of one instance or binding are in one partition.
func (t *kafkaTarget) deliver(ctx context.Context, e cloudevents.Event, encoded []byte) error {
	partitionKey, _ := e.Extensions()[attributePartitionKey].(string)
	record := &kgo.Record{Key: []byte(partitionKey), Value: encoded, Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte(contentType)}}}
	err := t.client.ProduceSync(ctx, record).FirstErr()
	if err == nil {
		return nil
	}
	t.mu.Lock()
	failure := t.failure
	t.mu.Unlock()
	if answer := (*kerr.Error)(nil); failure != nil && !errors.As(err, &answer) {
		return failed("connect to Kafka", failure, kafkaRemedies)
	}
	return failed("produce to the topic "+t.topic, err, kafkaRemedies)
}

func (t *kafkaTarget) close() { t.client.Close() }
