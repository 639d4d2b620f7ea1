package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// write writes the status with optimistic concurrency: it fails with a conflict if anybody
// changed the instance since it was read.
//
// The write has the events of the transition, too (recordTransition), and what it ends and begins of the usage.
//
// When the write is refused, the ledger is set to the hub's state at once. While its result is
// unknown, its reservations stay until a live read shows the result.
//
// Step 5 of a provision (docs/architecture.md).
func (r *instanceReconciler) write(ctx context.Context, s *scope, what writeKind) error {
	read := s.ResourceVersion
	now := r.clock.Now() // a delivery ends some time after the begin of its pass
	r.recordTransition(s, what, now)
	r.recordUsage(s, now)
	if err := r.journals().Trim(ctx, s); err != nil {
		return err
	}
	err := r.hub.Status().Update(ctx, s.ServiceInstance)
	r.recorder.Written(ctx, s, err)
	if err == nil {
		r.written.Store(s.Name, s.ResourceVersion)
		s.fresh, s.heard = false, false
		s.asRead()
		return nil
	}
	r.unsettled.Store(s.Name, read)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// Best effort: if it fails, it is repeated before the next pass.
		_ = r.settle(ctx, keyOf(s), &v1alpha1.ServiceInstance{})
	}
	return fmt.Errorf("write the instance's status: %w", err)
}
