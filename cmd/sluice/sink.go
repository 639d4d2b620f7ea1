package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal/sinks"
	"github.com/sluice-dev/sluice/internal/seal"
)

func newSinkCommand(hub *hubFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sink",
		Short: "Manage event sinks: servers that are told what happens",
	}
	hub.bind(cmd)
	cmd.AddCommand(newSinkAddCommand(hub), newSinkListCommand(hub), newSinkRemoveCommand(hub))
	return cmd
}

// sinkAddFlags describe the sink to add.
type sinkAddFlags struct {
	url, subject, topic, user, mechanism, caFile, keyFile, platform, filter string
	nats, kafka, addresses                                                  []string
	plaintext, kubernetes                                                   bool
}

func newSinkAddCommand(hub *hubFlags) *cobra.Command {
	f := &sinkAddFlags{}
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Send events to a server, or change which",
		Long: `Send the events of instances, bindings, clusters and peerings to a server, as CloudEvents (JSON): each is sent until
the server accepts it. So a server may get one twice, with the same id. Those of one instance or binding arrive in
their order. The server gets what happens from now on.

With --url, events are posted, and accepted with a status of 2xx. Each request is signed as Standard Webhooks
describes it. Without --key-file, a key is made and printed once.

With --nats, events are published to the subject --subject, and accepted when a stream of JetStream has stored them;
it stores an event once, though it is sent twice within its window for duplicates. --key-file has what the server
asks for: the password of --user; or, without --user, a file of credentials (JWT and NKey), the seed of an NKey, or
a token.

With --kafka, events are written to the topic --topic, and accepted when all replicas that are in sync have them.
--key-file has the password of --user.

With --kubernetes, events are written as Kubernetes Events beside the resources, which "kubectl events" lists, if the
hub is a cluster.

The key is sealed in the hub (or kept in a Secret, if the hub is a cluster). Only public addresses are reached, and
only with TLS, unless --address allows others.

If there is such a sink already, only the given flags change it.`,
		Example: `  sluice sink add billing --url https://billing.example/sluice --filter 'event.type in ["Delivered", "Removed"]'
  sluice sink add lab --url http://10.1.2.3:8080/ --address 10.1.2.0/24 --platform cf --key-file lab.key
  sluice sink add bus --nats tls://nats.example:4222 --subject sluice.events --user sluice --key-file nats.password
  sluice sink add log --kafka kafka.example:9093 --topic sluice-events --user sluice --key-file kafka.password`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.add(cmd, hub, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "URL to which events are posted")
	flags.StringSliceVar(&f.nats, "nats", nil, "servers of one NATS cluster, tls://HOST:PORT")
	flags.StringVar(&f.subject, "subject", "", "subject of NATS to which events are published")
	flags.StringSliceVar(&f.kafka, "kafka", nil, "brokers of one Kafka cluster, HOST:PORT")
	flags.StringVar(&f.topic, "topic", "", "topic of Kafka to which events are written")
	flags.StringVar(&f.user, "user", "", "user of NATS or Kafka whose password --key-file has")
	flags.StringVar(&f.mechanism, "mechanism", "", "mechanism of SASL by which Kafka is shown the password: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default SCRAM-SHA-512)")
	flags.BoolVar(&f.plaintext, "plaintext", false, "Kafka's brokers have no TLS")
	flags.BoolVar(&f.kubernetes, "kubernetes", false, "events are written as Kubernetes Events on the hub")
	flags.StringVar(&f.caFile, "ca-file", "", "file with the certificates (PEM) that the server's is checked against, if they are not the system's")
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key for signatures, whsec_ and base64 (default: a new one), or what NATS or Kafka asks for")
	flags.StringSliceVar(&f.addresses, "address", nil, "addresses (CIDR) that may be reached though they are not public")
	flags.StringVar(&f.platform, "platform", "", "platform whose events are sent (default: all)")
	flags.StringVar(&f.filter, "filter", "", "CEL expression over event; only events for which it is true are sent")
	return cmd
}

func (f *sinkAddFlags) add(cmd *cobra.Command, hub *hubFlags, name string) error {
	c, err := hub.client(cmd)
	if err != nil {
		return err
	}
	sink := &v1alpha1.EventSink{}
	err = c.Get(cmd.Context(), client.ObjectKey{Namespace: hub.namespace, Name: name}, sink)
	isNew := apierrors.IsNotFound(err)
	if err != nil && !isNew {
		return fmt.Errorf("sink %s: %w", name, err)
	}
	sink.Namespace, sink.Name = hub.namespace, name
	given := givenOf(cmd)
	if isNew && !given("url") && !given("nats") && !given("kafka") && !f.kubernetes {
		return fmt.Errorf("sink %s: --url, --nats, --kafka or --kubernetes: is missing", name)
	}
	if err := f.describe(sink, given, hub.embedded()); err != nil {
		return fmt.Errorf("sink %s: %w", name, err)
	}
	makesKey := isNew && sink.Spec.URL != "" && !given("key-file")
	key := ""
	if makesKey {
		key = sinks.NewKey()
	}
	if given("key-file") {
		content, err := os.ReadFile(f.keyFile)
		if err != nil {
			return fmt.Errorf("sink %s: --key-file: %w", name, err)
		}
		key = string(bytes.TrimSpace(content))
	}
	if key != "" {
		if err = sinks.Check(&sink.Spec, key); err == nil {
			err = hub.keepSinkKey(cmd.Context(), c, sink, key)
		}
		if err != nil {
			return fmt.Errorf("sink %s: %w", name, err)
		}
	}
	if given("platform") {
		hub.warnOfPlatform(cmd, c, f.platform)
	}
	if isNew {
		err = c.Create(cmd.Context(), sink)
	} else {
		err = c.Update(cmd.Context(), sink)
	}
	if err != nil {
		return fmt.Errorf("sink %s: %w", name, err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "sink %s: events are sent to %s\n", name, destination(&sink.Spec))
	if makesKey {
		fmt.Fprintf(cmd.OutOrStdout(), "Its key, with which the server checks the signatures, is not shown again:\n%s\n", key)
	}
	return nil
}

// describe applies the flags on the command line.
func (f *sinkAddFlags) describe(sink *v1alpha1.EventSink, given given, hubIsEmbedded bool) error {
	stream, topic := cmp.Or(sink.Spec.NATS, &v1alpha1.EventSinkNATS{}), cmp.Or(sink.Spec.Kafka, &v1alpha1.EventSinkKafka{})
	user := &stream.User
	if sink.Spec.Kafka != nil || given("kafka") || given("topic") || given("mechanism") || given("plaintext") {
		sink.Spec.Kafka, user = topic, &topic.User
	}
	if given("nats") || given("subject") || given("user") && user == &stream.User {
		sink.Spec.NATS = stream
	}
	if given("nats") {
		stream.Servers = f.nats
	}
	if given("kafka") {
		topic.Brokers = f.kafka
	}
	if given("kubernetes") {
		if f.kubernetes && hubIsEmbedded {
			return errors.New("--kubernetes: this hub is embedded in Sluice and has no Events; `sluice events` lists what happens")
		}
		sink.Spec.KubernetesEvents = f.kubernetes
	}
	if given("plaintext") {
		topic.Plaintext = f.plaintext
	}
	for flag, field := range map[string]struct {
		into *string
		from string
	}{
		"url": {&sink.Spec.URL, f.url}, "subject": {&stream.Subject, f.subject}, "topic": {&topic.Topic, f.topic},
		"user": {user, f.user}, "mechanism": {&topic.Mechanism, f.mechanism},
		"platform": {&sink.Spec.Platform, f.platform}, "filter": {&sink.Spec.Filter, f.filter},
	} {
		if given(flag) {
			*field.into = field.from
		}
	}
	if given("address") {
		sink.Spec.Addresses = f.addresses
	}
	if given("ca-file") {
		bundle, err := os.ReadFile(f.caFile)
		if err != nil {
			return fmt.Errorf("--ca-file: %w", err)
		}
		sink.Spec.CABundle = string(bundle)
	}
	if err := sinks.CheckFilter(sink.Spec.Filter); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

// destination returns where a sink's events are sent.
func destination(spec *v1alpha1.EventSinkSpec) string {
	if to := spec.NATS; to != nil {
		return strings.Join(to.Servers, ",") + " " + to.Subject
	}
	if to := spec.Kafka; to != nil {
		return strings.Join(to.Brokers, ",") + " " + to.Topic
	}
	if spec.KubernetesEvents {
		return "Kubernetes Events"
	}
	return spec.URL
}

// keepSinkKey keeps the key of a sink: sealed with the embedded hub's keyset, or in a Secret.
func (h *hubFlags) keepSinkKey(ctx context.Context, c client.Client, sink *v1alpha1.EventSink, key string) error {
	if h.embedded() {
		keys, err := seal.Open(h.keysetPath())
		if err != nil {
			return err
		}
		sealed, err := keys.Seal([]byte(key), sinks.Owner(sink.Namespace, sink.Name))
		sink.Spec.Key = v1alpha1.EventSinkKey{Sealed: sealed}
		return err
	}
	name := sinkSecretName(sink.Name)
	secret := corev1ac.Secret(name, sink.Namespace).WithType(corev1.SecretTypeOpaque).WithData(map[string][]byte{sinks.SecretKey: []byte(key)})
	if err := c.Apply(ctx, secret, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return fmt.Errorf("store its key in Secret %s: %w", name, err)
	}
	sink.Spec.Key = v1alpha1.EventSinkKey{SecretName: name}
	return nil
}

func sinkSecretName(sink string) string { return "sluice-sink-" + sink }

func newSinkListCommand(hub *hubFlags) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List event sinks, whether they accept events, and until when all are delivered",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			var all v1alpha1.EventSinkList
			if err := c.List(cmd.Context(), &all, client.InNamespace(hub.namespace)); err != nil {
				return fmt.Errorf("list event sinks: %w", err)
			}
			t := table{header: []string{"NAME", "READY", "DELIVERED", "PLATFORM", "TO", "FILTER", "AGE"}, wide: []string{"FILTER"}}
			for i := range all.Items {
				s := &all.Items[i]
				delivered := ""
				if until := s.Status.DeliveredUntil; until != nil {
					delivered = "until " + age(metav1.NewTime(until.Time)) + " ago"
				}
				t.rows = append(t.rows, []string{
					s.Name, yesNo(viewCondition(s.Status.Conditions, v1alpha1.ConditionReady)), orDash(delivered), orDash(s.Spec.Platform), destination(&s.Spec), orDash(s.Spec.Filter), age(v1alpha1.CreatedOf(s)),
				})
			}
			return output.print(cmd.OutOrStdout(), all.Items, t)
		},
	}
	output.bind(cmd)
	return cmd
}

func newSinkRemoveCommand(hub *hubFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Send no more events to a server, not even those that wait",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hub.client(cmd)
			if err != nil {
				return err
			}
			err = c.Delete(cmd.Context(), &v1alpha1.EventSink{ObjectMeta: metav1.ObjectMeta{Namespace: hub.namespace, Name: args[0]}})
			if client.IgnoreNotFound(err) == nil && !hub.embedded() {
				// Also if the sink is gone: an earlier attempt may have ended in between.
				key := metav1.ObjectMeta{Namespace: hub.namespace, Name: sinkSecretName(args[0])}
				if keyErr := c.Delete(cmd.Context(), &corev1.Secret{ObjectMeta: key}); keyErr == nil || client.IgnoreNotFound(keyErr) != nil {
					err = keyErr
				}
			}
			if err != nil {
				return fmt.Errorf("sink %s: %w", args[0], err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "sink %s: removed\n", args[0])
			return err
		},
	}
}
