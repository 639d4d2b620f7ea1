// Package requeue has a reconciler look again, without a word, at what somebody else has changed meanwhile.
//
// Optimistic concurrency (the Kubernetes API conventions, "Concurrency Control and Consistency") makes conflicts part
// of the normal course: the next look sees the change. As errors they would be logged with a stack trace, counted as
// failures, and waited for longer each time.
//
// This package must not know what is reconciled.
package requeue

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// after is how long the cache is given to see the change.
const after = 20 * time.Millisecond

// OnConflict is a reconciler that looks again soon after a conflict, instead of failing.
func OnConflict(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := inner.Reconcile(ctx, request)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: after}, nil
		}
		return result, err
	})
}
