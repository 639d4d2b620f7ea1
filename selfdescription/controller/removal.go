package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// removeEvery is the time between two looks for credentials that ended long ago.
const removeEvery = time.Hour

// removal removes presented credentials that ended long ago.
type removal struct {
	Options
	hub client.Client
}

// Start removes credentials until ctx ends. It runs on the leader only.
func (r *removal) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		removed, err := r.look(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Credentials that have ended are not removed")
		}
		if removed > 0 {
			log.FromContext(ctx).Info("Removed credentials that ended long ago", "count", removed)
		}
	}, removeEvery)
	return nil
}

// look removes the credentials whose time has come, and returns how many. It is idempotent. One that was changed at this
// moment waits for the next look.
func (r *removal) look(ctx context.Context) (removed int, err error) {
	var list v1alpha1.SelfDescriptionList
	if err := r.hub.List(ctx, &list, client.InNamespace(r.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list credentials: %w", err)
	}
	now := r.Clock.Now()
	var problems []error
	for i := range list.Items {
		at := list.Items[i].RemovedAt()
		if at.IsZero() || now.Before(at) {
			continue
		}
		sd := list.Items[i].DeepCopy()
		err := r.hub.Delete(ctx, sd, client.Preconditions{UID: &sd.UID, ResourceVersion: &sd.ResourceVersion})
		switch {
		case err == nil:
			removed++
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			problems = append(problems, fmt.Errorf("remove credential %s: %w", sd.Name, err))
		}
	}
	return removed, errors.Join(problems...)
}
