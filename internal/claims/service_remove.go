package claims

import (
	"cmp"
	"context"
	"fmt"
	"strings"

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
	status, id, broker, hide := &s.claim.Status, string(s.claim.UID), s.Broker(), s.hidden(ctx)
	of := status.Operation.To
	ended, err := osbclient.End(&status.Operation.Token, func() (osbclient.Accepted, error) {
		return broker.Deprovision(ctx, id, of.ServiceID, of.PlanID, s.Cluster.Identity)
	}, func(token string) (osbclient.Operation, error) {
		return broker.LastOperation(ctx, id, of.ServiceID, of.PlanID, token)
	})
	said := hide.text(ended.Description)
	switch {
	case err != nil:
		return unavailable(err, hide)
	case ended.State == osbclient.Succeeded:
		return nil
	case ended.State == osbclient.Failed:
		status.LastOperation = said
		return &problem{reason: claimsv1.ReasonFailed, message: "deprovision failed: " + cmp.Or(said, "the broker gives no reason"), after: firstRetry}
	}
	message := "the broker deletes the instance"
	if said != "" {
		status.LastOperation = said
		message += ": " + said
	}
	return &problem{reason: claimsv1.ReasonDeleting, message: message, after: cmp.Or(ended.RetryAfter, usualPause)}
}
