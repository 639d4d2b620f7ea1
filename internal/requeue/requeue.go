// Package requeue makes a reconciler retry silently after a write conflict.
//
// Optimistic concurrency (the Kubernetes API conventions, "Concurrency Control and Consistency") makes conflicts part
// of the normal course: the retry sees the change. As errors they would be logged with a stack trace, counted as
// failures, and retried later each time.
//
// This package must not know what is reconciled.
package requeue

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// after is the delay of the retry: the cache needs that long to see the change.
const after = 20 * time.Millisecond

// OnConflict wraps a reconciler: on a conflict it retries soon instead of failing.
func OnConflict(inner reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := inner.Reconcile(ctx, request)
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: after}, nil
		}
		return result, err
	})
}
