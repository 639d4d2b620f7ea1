package sinks

import (
	"context"
	"errors"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/guarded"
)

// concurrency is the number of events on their way to a sink at the same time, each about another instance or binding.
const concurrency = 16

// contentType of an encoded event, in the structured mode of CloudEvents.
const contentType = cloudevents.ApplicationCloudEventsJSON + "; charset=utf-8"

// target is the far end of a sink.
type target interface {
	// deliver sends an event and its encoding. Without an error, the sink has accepted it. It may be called several times
	// at once.
	deliver(ctx context.Context, e cloudevents.Event, encoded []byte) error
	// close ends the connections. It is called once, after the last deliver has returned.
	close()
}

// kinds of targets, by what describes them.
var kinds = []struct {
	isDescribed func(*v1alpha1.EventSinkSpec) bool
	open        func(spec *v1alpha1.EventSinkSpec, key string, by means) (target, error)
}{
	{func(s *v1alpha1.EventSinkSpec) bool { return s.URL != "" }, newHTTP},
	{func(s *v1alpha1.EventSinkSpec) bool { return s.NATS != nil }, newNATS},
	{func(s *v1alpha1.EventSinkSpec) bool { return s.Kafka != nil }, newKafka},
	{func(s *v1alpha1.EventSinkSpec) bool { return s.KubernetesEvents }, newKubernetes},
}

// means are how a sink is reached: over the network, or on the hub.
type means struct {
	reach     guarded.Options
	hub       client.Client
	namespace string
}

// remedy says what an operator does about an error.
type remedy struct {
	err  error
	what string
}

// failed returns the error of a step, with its remedy if there is a known one.
func failed(step string, err error, known []remedy) error {
	for _, r := range known {
		if errors.Is(err, r.err) {
			return fmt.Errorf("%s: %w: %s", step, err, r.what)
		}
	}
	return fmt.Errorf("%s: %w", step, err)
}

// newTarget returns the target of a sink; it is not connected to yet. Its error does not contain the key.
func newTarget(spec *v1alpha1.EventSinkSpec, key string, hub client.Client, namespace string) (target, error) {
	addresses, err := guarded.ParseAddresses(spec.Addresses)
	if err != nil {
		return nil, err
	}
	roots, err := guarded.ParseRoots([]byte(spec.CABundle))
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		if kind.isDescribed(spec) {
			return kind.open(spec, key, means{guarded.Options{Roots: roots, AllowAddresses: addresses, KeepAlive: concurrency}, hub, namespace})
		}
	}
	return nil, errors.New("it says nowhere where events are sent: add the sink again")
}

// Check reports what is wrong with a sink's description of its server, or with its key. It asks no server, and its error
// does not contain the key.
func Check(spec *v1alpha1.EventSinkSpec, key string) error {
	t, err := newTarget(spec, key, nil, "")
	if err == nil {
		t.close()
	}
	return err
}
