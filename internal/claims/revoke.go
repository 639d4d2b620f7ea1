package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	claimsv1 "github.com/sluice-dev/sluice/api/claims/v1alpha1"
	"github.com/sluice-dev/sluice/internal/osbclient"
)

// mostKept is how many bindings are kept until pods have read their successor. Of more, the oldest are unbound at once.
const mostKept = 16

// abandon makes a binding one that is to be unbound at once.
func (b *bindingPass) abandon(one *claimsv1.BrokerBinding) {
	one.Token, one.RevokeAt = nil, &metav1.Time{Time: b.now().Truncate(time.Second)}
	b.claim.Status.Revoking = append(b.claim.Status.Revoking, *one)
}

// revoke unbinds the bindings whose time has come, or all. It returns a problem while there are such ones.
func (b *bindingPass) revoke(ctx context.Context, all bool) (*problem, error) {
	status := &b.claim.Status
	var kept []claimsv1.BrokerBinding
	var waits *problem
	for i := range status.Revoking {
		one := status.Revoking[i]
		tooMany := i < len(status.Revoking)-mostKept
		if all || tooMany || one.RevokeAt == nil || !b.now().Before(one.RevokeAt.Time) {
			wrong := b.unbind(ctx, &one)
			if wrong == nil {
				continue
			}
			waits = wrong
			pause := usualPause
			if wrong.err != nil {
				one.Attempts++
				pause = pauseAfter(one.Attempts)
			}
			one.RevokeAt = &metav1.Time{Time: b.now().Add(max(wrong.after, pause))}
		}
		kept = append(kept, one)
	}
	status.Revoking = kept
	return waits, b.save(ctx)
}

// unbind deletes a binding at the broker, and returns nil once the broker says that there is none.
func (b *bindingPass) unbind(ctx context.Context, one *claimsv1.BrokerBinding) *problem {
	plan, broker := one.PlanID, b.Broker()
	if s := b.service; s != nil && string(s.UID) == one.InstanceID && s.Status.Instance != nil {
		plan = s.Status.Instance.PlanID // it may have changed since
	}
	ended, err := osbclient.End(&one.Token, func() (osbclient.Accepted, error) {
		return broker.Unbind(ctx, one.InstanceID, one.ID, one.ServiceID, plan, b.Cluster.Identity, true)
	}, func(token string) (osbclient.Operation, error) {
		return broker.BindingLastOperation(ctx, one.InstanceID, one.ID, one.ServiceID, plan, token)
	})
	switch {
	case err != nil:
		return unavailable(err, nil)
	case ended.State == osbclient.Succeeded:
		log.FromContext(ctx).Info("unbound", "binding", one.ID)
		return nil
	case ended.State == osbclient.Failed:
		err := errors.New("unbind failed: " + ended.Reason())
		return &problem{reason: claimsv1.ReasonFailed, message: err.Error(), err: err}
	}
	return &problem{reason: claimsv1.ReasonDeleting, message: "the broker is unbinding", after: max(ended.RetryAfter, time.Second)}
}

// remove deletes the Secret and unbinds everything, and then lets the claim go. It returns neither a problem nor an error
// once it is gone.
func (b *bindingPass) remove(ctx context.Context) (*problem, error) {
	if !controllerutil.ContainsFinalizer(b.claim, claimsv1.Finalizer) {
		return nil, nil
	}
	secret, foreign, err := b.secret(ctx)
	if err != nil {
		return nil, err
	}
	if secret != nil && foreign == nil {
		err := b.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("delete Secret %s: %w", secret.Name, err)
		}
	}
	status := &b.claim.Status
	for _, one := range []*claimsv1.BrokerBinding{status.Current, status.Next} {
		if one != nil {
			b.abandon(one)
		}
	}
	status.Current, status.Next, status.Binding, status.ExpiresAt, status.Failure = nil, nil, nil, nil, nil
	if wrong, err := b.revoke(ctx, true); wrong != nil || err != nil {
		return wrong, err
	}
	return nil, b.release(ctx, b.claim)
}
