package requeue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-dev/sluice/internal/requeue"
)

// TestOnConflict: a conflict, however deep it is wrapped, is not a failure; all other errors pass
// unchanged.
func TestOnConflict(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "serviceinstances"}, "si-1", errors.New("the object has been modified"))
	for _, row := range []struct {
		name   string
		result reconcile.Result
		err    error
		fails  bool
		after  time.Duration
	}{
		{name: "done"},
		{name: "later", result: reconcile.Result{RequeueAfter: time.Minute}, after: time.Minute},
		{name: "a conflict", err: conflict, after: 20 * time.Millisecond},
		{name: "a conflict below", result: reconcile.Result{RequeueAfter: time.Minute}, err: fmt.Errorf("write the status: %w", conflict), after: 20 * time.Millisecond},
		{name: "a failure", err: errors.New("no"), fails: true},
		{name: "not found", err: apierrors.NewNotFound(schema.GroupResource{}, "x"), fails: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return row.result, row.err })
			result, err := requeue.OnConflict(inner).Reconcile(t.Context(), reconcile.Request{})
			if (err != nil) != row.fails || result.RequeueAfter != row.after {
				t.Errorf("got %+v, %v", result, err)
			}
		})
	}
}
