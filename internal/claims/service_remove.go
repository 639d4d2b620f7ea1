package claims

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// remove deletes the instance, and then lets the claim go. It returns neither a problem nor an error once it is gone.
func (s *servicePass) remove(ctx context.Context) (*problem, error) {
	if !controllerutil.ContainsFinalizer(s.claim, claimsv1.Finalizer) {
		return nil, nil
	}
	var bindings claimsv1.BindingClaimList
	if err := s.Client.List(ctx, &bindings, client.InNamespace(s.claim.Namespace)); err != nil {
		return nil, fmt.Errorf("list the binding claims: %w", err)
	}
	var bound []string
	for i := range bindings.Items {
		if b := &bindings.Items[i]; b.Spec.ServiceClaim == s.claim.Name && controllerutil.ContainsFinalizer(b, claimsv1.Finalizer) {
			bound = append(bound, b.Name)
		}
	}
	if len(bound) > 0 {
		return &problem{reason: claimsv1.ReasonDeleting, message: "it is deleted after its binding claims: " + strings.Join(bound, ", "), after: Recheck}, nil
	}
	status := &s.claim.Status
	if status.Operation != nil || status.Instance != nil {
		if o := status.Operation; o == nil || o.Type != claimsv1.OperationDeprovision {
			to := status.Instance
			if to == nil {
				to = &o.To
			}
			status.Failure = nil
			if err := s.begin(ctx, claimsv1.OperationDeprovision, *to, 0); err != nil {
				return nil, err
			}
		}
		if wrong := s.deprovision(ctx); wrong != nil {
			return wrong, nil
		}
	}
	return nil, s.release(ctx, s.claim)
}

// deprovision asks for the deletion of the instance, or how far that is. It returns nil once the broker says that there is
// none.
func (s *servicePass) deprovision(ctx context.Context) *problem {
	operation, id, broker, hide := s.claim.Status.Operation, string(s.claim.UID), s.Broker(), s.hidden(ctx)
	of := operation.To
	deleting := func(pause time.Duration, said string) *problem {
		message := "the broker deletes the instance"
		if said = hide.text(said); said != "" {
			s.claim.Status.LastOperation = said
			message += ": " + said
		}
		return &problem{reason: claimsv1.ReasonDeleting, message: message, after: cmp.Or(pause, usualPause)}
	}
	if operation.Token == nil {
		accepted, err := broker.Deprovision(ctx, id, of.ServiceID, of.PlanID, s.Cluster.Identity)
		switch {
		case err != nil:
			return unavailable(err, hide)
		case accepted.Done:
			return nil
		}
		operation.Token = &accepted.Operation
		return deleting(accepted.RetryAfter, "")
	}
	polled, err := broker.LastOperation(ctx, id, of.ServiceID, of.PlanID, *operation.Token)
	switch {
	case err != nil && judge(err) == repeat:
		return unavailable(err, hide)
	case err != nil:
		operation.Token = nil // asked for again, the broker says whether there is something to delete
		return deleting(0, err.Error())
	case polled.State == osbclient.Succeeded:
		return nil
	case polled.State == osbclient.Failed:
		operation.Token = nil
		s.claim.Status.LastOperation = hide.text(polled.Description)
		return &problem{reason: claimsv1.ReasonFailed, message: "deprovision failed: " + cmp.Or(s.claim.Status.LastOperation, "the broker gives no reason"), after: firstRetry}
	}
	return deleting(polled.RetryAfter, polled.Description)
}
