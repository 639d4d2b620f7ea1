package sinks

import (
	"fmt"
	"strings"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
)

// Attributes of CloudEvents beyond those of the specification 1.0, from its documented extensions.
const (
	attributeSequence     = "sequence"     // orders the events of one resource, as text
	attributePartitionKey = "partitionkey" // is the same for the events that are to stay in order
)

// cloudEvent returns an event as a CloudEvent. Its id is the same each time that it is sent. It has the event's time, too,
// because a hub that is restored from a backup gives the numbers since then again, to other events.
func cloudEvent(hub string, e journal.Entry) (cloudevents.Event, error) {
	out := cloudevents.New()
	out.SetID(fmt.Sprintf("%s-%d-%d", e.UID, e.Sequence, e.At.UnixMicro()))
	out.SetSource("urn:sluice:" + hub)
	kind, subject := "instance", e.InstanceID
	switch e.Kind {
	case v1alpha1.KindServiceBinding:
		kind, subject = "binding", e.InstanceID+"/"+e.BindingID
	case v1alpha1.KindMemberCluster:
		kind, subject = "cluster", e.Name
	case v1alpha1.KindPeering:
		kind, subject = "peering", strings.Join(e.Clusters, "/")
	}
	out.SetType("dev.sluice." + kind + "." + strings.ToLower(string(e.Type)))
	out.SetSubject(subject)
	out.SetTime(e.At.Time)
	out.SetExtension(attributeSequence, fmt.Sprintf("%010d", e.Sequence))
	out.SetExtension(attributePartitionKey, string(e.UID))
	err := out.SetData(cloudevents.ApplicationJSON, e)
	if err == nil {
		err = out.Validate()
	}
	return out, err
}
