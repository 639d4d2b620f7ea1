package console

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/workload"
)

// instanceData is the data of an operator's page of an instance.
type instanceData struct {
	*v1alpha1.ServiceInstance
	Row        *instanceRow
	Namespace  string
	Parameters string
	Decision   *decision
	// Delivered is the decision in force, if another one is being delivered.
	Delivered *decision
	Bindings  []bindingRow
	Events    []eventRow
}

// bindingRow is a binding in a list.
type bindingRow struct {
	ID      string
	State   state
	Issued  *metav1.Time
	Expires *metav1.Time

	of *v1alpha1.ServiceBinding
}

// eventRow is an event of a timeline.
type eventRow struct {
	v1alpha1.Event
	// Kind selects sign and colour, as that of a state.
	Kind string
	By   string
	Took string
}

// kindsOfEvents select their signs; others are plain.
var kindsOfEvents = map[v1alpha1.EventType]string{
	v1alpha1.EventDelivered: "good", v1alpha1.EventReady: "good", v1alpha1.EventBound: "good", v1alpha1.EventMoved: "good", v1alpha1.EventReissued: "good",
	v1alpha1.EventRefused: "bad", v1alpha1.EventFailed: "bad", v1alpha1.EventNotReady: "bad", v1alpha1.EventExpiring: "busy", v1alpha1.EventNearQuota: "busy", v1alpha1.EventRemoved: "off",
	v1alpha1.EventLost: "bad", v1alpha1.EventNotAdmitted: "bad", v1alpha1.EventAdmitted: "good", v1alpha1.EventUncordoned: "good", v1alpha1.EventCordoned: "off", v1alpha1.EventDrained: "off",
}

func newEventRow(e v1alpha1.Event) eventRow {
	row := eventRow{Event: e, Kind: kindsOfEvents[e.Type], By: journal.User(e.By)}
	if e.After != nil {
		row.Took = took(e.After.Duration)
	}
	return row
}

// took formats how long something took.
func took(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return long(d)
}

func (s *server) instancePage(c *call) (*page, error) {
	name := c.PathValue("name")
	i := &v1alpha1.ServiceInstance{}
	if err := s.get(c.Context(), name, i); err != nil {
		return nil, orNoSuch(err, "instance", name)
	}
	data := instanceData{
		ServiceInstance: i, Row: s.rows([]*v1alpha1.ServiceInstance{i})[0], Namespace: v1alpha1.MemberNamespace(i.Name),
		Decision: decisionOf(i.Status.Decision), Parameters: string(workload.ShownParameters(i.Spec.Desired.Raw())),
	}
	if i.Status.IsUndelivered() {
		data.Delivered = decisionOf(i.Status.DeliveredDecision())
	}
	events, err := journal.Of(c.Context(), s.Live, i)
	if err != nil {
		return nil, fmt.Errorf("read the journal of instance %s: %w", name, err)
	}
	for _, e := range slices.Backward(events) {
		data.Events = append(data.Events, newEventRow(e))
	}
	if data.Bindings, err = s.bindingsOf(c, i); err != nil {
		return nil, err
	}
	return &page{Title: i.Spec.InstanceID, template: "instance", Live: Root + "live?instance=" + name, Data: data}, nil
}

// bindingsOf returns the bindings of an instance, the newest first.
func (s *server) bindingsOf(c *call, i *v1alpha1.ServiceInstance) (rows []bindingRow, err error) {
	var all v1alpha1.ServiceBindingList
	if err := s.list(c.Context(), &all, client.MatchingFields{v1alpha1.FieldInstanceName: i.Name}); err != nil {
		return nil, err
	}
	own := slices.Clone(all.Items)
	slices.SortFunc(own, func(a, b v1alpha1.ServiceBinding) int {
		return v1alpha1.CreatedOf(&b).Compare(v1alpha1.CreatedOf(&a).Time)
	})
	for n := range own {
		b := &own[n]
		rows = append(rows, bindingRow{ID: b.Spec.BindingID, State: stateOf(b.Status.Conditions, v1alpha1.CreatedOf(b)), Issued: b.Status.IssuedAt, Expires: b.Status.ExpiresAt, of: b})
	}
	return rows, nil
}
