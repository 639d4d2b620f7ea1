// Package journaltest checks journals.
package journaltest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
)

// Audit checks the events of all instances and bindings of a namespace: each has all of its events once and in
// order, from its first order on, and to its removal unless it is still there; and none that did not happen. Of clusters
// and peerings it checks that none is missing or repeated. It returns the number of instances and bindings that have
// events.
func Audit(ctx context.Context, hub client.Reader, namespace string, isThere func(types.UID) bool) (int, error) {
	all, err := journal.Read(ctx, hub, namespace, func(journal.Entry) bool { return true })
	if err != nil {
		return 0, err
	}
	lives := map[types.UID][]journal.Entry{}
	for _, e := range all {
		lives[e.UID] = append(lives[e.UID], e)
	}
	for uid, life := range lives {
		slices.SortStableFunc(life, func(a, b journal.Entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
		if kind := life[0].Kind; kind == v1alpha1.KindMemberCluster || kind == v1alpha1.KindPeering {
			delete(lives, uid)
			if err := checkConditions(life); err != nil {
				return len(lives), fmt.Errorf("%s %s: %w: %+v", kind, life[0].Name, err, life)
			}
			continue
		}
		if err := check(life, isThere(uid)); err != nil {
			return len(lives), fmt.Errorf("%s %s %s: %w: %+v", life[0].Kind, life[0].InstanceID, life[0].BindingID, err, life)
		}
	}
	return len(lives), nil
}

// check checks the events of one resource. It is ordered first and removed last; whatever ends an operation
// follows its order.
func check(life []journal.Entry, isThere bool) error {
	under := v1alpha1.OperationType("") // the operation that was ordered and has not ended
	for i, e := range life {
		isEnd := i == len(life)-1 && !isThere
		switch {
		case e.Sequence != int64(i+1):
			return fmt.Errorf("event %d has the number %d", i+1, e.Sequence)
		case i == 0 && e.Type != v1alpha1.EventOrdered:
			return fmt.Errorf("it began with %s", e.Type)
		case isEnd != (e.Type == v1alpha1.EventRemoved):
			return fmt.Errorf("event %d of %d is %s", i+1, len(life), e.Type)
		}
		switch e.Type {
		case v1alpha1.EventOrdered:
			under = e.Operation
		case v1alpha1.EventDelivered, v1alpha1.EventBound:
			if under == "" || under != e.Operation {
				return fmt.Errorf("event %d is %s of %s, which was not under way", i+1, e.Type, e.Operation)
			}
			under = ""
		}
	}
	return nil
}

// conditions are events that follow each other.
var conditions = [][]v1alpha1.EventType{
	{v1alpha1.EventReady, v1alpha1.EventNotReady, v1alpha1.EventLost},
	{v1alpha1.EventAdmitted, v1alpha1.EventNotAdmitted},
	{v1alpha1.EventCordoned, v1alpha1.EventUncordoned},
}

// checkConditions checks the events of a cluster or a peering: they are numbered without gaps, none is repeated while
// nothing has changed, and nothing follows the removal. A cluster may be lost twice before it is ready again.
func checkConditions(life []journal.Entry) error {
	for i, e := range life {
		if e.Sequence != int64(i+1) {
			return fmt.Errorf("event %d has the number %d", i+1, e.Sequence)
		}
		if e.Type == v1alpha1.EventRemoved && i < len(life)-1 {
			return fmt.Errorf("event %d of %d is %s", i+1, len(life), e.Type)
		}
	}
	for _, types := range conditions {
		last := v1alpha1.EventType("")
		for i, e := range life {
			if !slices.Contains(types, e.Type) {
				continue
			}
			if e.Type == last && e.Type != v1alpha1.EventLost {
				return fmt.Errorf("event %d is %s, as the one before it", i+1, e.Type)
			}
			last = e.Type
		}
	}
	return nil
}
