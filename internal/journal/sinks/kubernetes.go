package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
)

// reportingController is the name of Sluice in Kubernetes Events.
const reportingController = "sluice.dev/sluice"

// longestNote is the number of bytes that the API server accepts as the note of an Event.
const longestNote = 1024

// kubernetesTarget writes Kubernetes Events (events.k8s.io/v1) beside the resources on the hub. The API server removes
// them after its --event-ttl.
type kubernetesTarget struct {
	hub       client.Client
	namespace string
}

func newKubernetes(_ *v1alpha1.EventSinkSpec, _ string, by means) (target, error) {
	return &kubernetesTarget{by.hub, by.namespace}, nil
}

// deliver creates an Event. The name follows from the event's id, so one that is sent again is there already.
func (t *kubernetesTarget) deliver(ctx context.Context, e cloudevents.Event, _ []byte) error {
	var entry journal.Entry
	if err := e.DataAs(&entry); err != nil {
		return fmt.Errorf("decode event %s: %w", e.ID(), err)
	}
	out := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: t.namespace, Name: entry.Name + "." + e.ID()},
		EventTime:           entry.At,
		ReportingController: reportingController, ReportingInstance: e.Source(),
		Action: cmp.Or(string(entry.Operation), string(entry.Type)), Reason: string(entry.Type), Type: corev1.EventTypeNormal,
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: entry.Kind, Namespace: t.namespace, Name: entry.Name, UID: entry.UID,
		},
		Note: cut(note(entry)),
	}
	if entry.Type.IsBad() {
		out.Type = corev1.EventTypeWarning
	}
	err := t.hub.Create(ctx, out)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return errors.New("this hub has no Events (events.k8s.io/v1): remove the sink, `sluice events` lists what happens")
	}
	return err
}

// note says in one line what an event is about.
func note(e journal.Entry) string {
	var parts []string
	if len(e.Clusters) > 0 && e.Kind != v1alpha1.KindMemberCluster {
		parts = append(parts, "on "+strings.Join(e.Clusters, ", "))
	}
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	if e.After != nil {
		parts = append(parts, "after "+e.After.Duration.String())
	}
	return strings.Join(parts, "; ")
}

// cut shortens a note to the number of bytes that the API server accepts.
func cut(note string) string {
	return strings.ToValidUTF8(note[:min(len(note), longestNote)], "")
}

func (t *kubernetesTarget) close() {}
