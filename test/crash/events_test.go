//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
)

// auditEvents checks the events of instances and bindings that are all gone: each resource has all of its
// events once and in order, from the first order to its removal, and none that did not happen.
func auditEvents(ctx context.Context, hub client.Reader) error {
	all, err := journal.Read(ctx, hub, namespace, func(journal.Entry) bool { return true })
	if err != nil {
		return err
	}
	lives := map[types.UID][]journal.Entry{}
	for _, e := range all {
		lives[e.UID] = append(lives[e.UID], e)
	}
	if len(lives) == 0 {
		return errors.New("nothing has happened")
	}
	for _, life := range lives {
		if err := auditLife(life); err != nil {
			return fmt.Errorf("%s %s %s: %w: %+v", life[0].Kind, life[0].InstanceID, life[0].BindingID, err, life)
		}
	}
	return nil
}

// auditLife checks the events of one resource. It is ordered first and removed last; whatever ends an operation
// follows its order.
func auditLife(life []journal.Entry) error {
	under := v1alpha1.OperationType("") // the operation that was ordered and has not ended
	for i, e := range life {
		last := i == len(life)-1
		switch {
		case e.Sequence != int64(i+1):
			return fmt.Errorf("event %d has the number %d", i+1, e.Sequence)
		case i == 0 && e.Type != v1alpha1.EventOrdered:
			return fmt.Errorf("it began with %s", e.Type)
		case last != (e.Type == v1alpha1.EventRemoved):
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
