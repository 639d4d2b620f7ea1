package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// Patience with a cluster's own caches and controllers, within one call.
const (
	permissionPatience = 5 * time.Second
	quotaPatience      = 2 * time.Second
)

// soon retries quickly at first, as most waits are for one watch event.
var soon = wait.Backoff{Duration: 4 * time.Millisecond, Factor: 1.5, Jitter: 0.1, Steps: 12, Cap: 200 * time.Millisecond}

// apply applies one object server-side. An apply that changes nothing writes nothing.
func (t *target) apply(ctx context.Context, o Object) error {
	return applyTo(ctx, t.connection.Client, o)
}

func applyTo(ctx context.Context, c client.Client, o Object) error {
	if err := c.Apply(ctx, o, client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s %s: %w", *o.GetKind(), *o.GetName(), err)
	}
	return nil
}

// applyAllowed applies an object for which Sluice needs the self-binding.
func (t *target) applyAllowed(ctx context.Context, o Object) error {
	return onceAllowed(ctx, func(ctx context.Context) error { return t.apply(ctx, o) })
}

// onceAllowed repeats do while it is forbidden: API servers authorize from caches,
// which see the self-binding some milliseconds after its creation.
func onceAllowed(ctx context.Context, do func(context.Context) error) error {
	patient, cancel := context.WithTimeout(ctx, permissionPatience)
	defer cancel()
	var last error
	err := soon.DelayFunc().Until(patient, true, false, func(context.Context) (bool, error) {
		last = do(ctx)
		retry := apierrors.IsForbidden(last) && !apierrors.HasStatusCause(last, corev1.NamespaceTerminatingCause)
		return !retry, nil
	})
	if last == nil && err != nil {
		return err // the context ended before the first try
	}
	return last
}

// checkUse refuses a plan below what is in use. A consumer who adds workloads
// between this check and the new quota ends up above it: the quota then keeps
// them from adding more, as Kubernetes does for every quota that shrinks.
func (t *target) checkUse(ctx context.Context) error {
	var current corev1.ResourceQuota
	err := onceAllowed(ctx, func(ctx context.Context) error {
		return t.connection.Client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: objectName}, &current)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read quota: %w", err)
	}
	if reason := exceeded(current, t.hard); reason != "" {
		return &placement.RefusedError{Reason: reason + " on " + t.connection.Cluster, Remedy: "delete workloads first"}
	}
	return nil
}

// awaitQuota waits until the cluster enforces the quota. Admission counts by
// status.hard, which a controller of the cluster copies from spec: before that, a
// consumer could take more than was reserved.
func (t *target) awaitQuota(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, quotaPatience)
	defer cancel()
	var last error
	err := soon.DelayFunc().Until(patient, true, false, func(context.Context) (bool, error) {
		var current corev1.ResourceQuota
		last = t.connection.Client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: objectName}, &current)
		return last == nil && enforces(current, t.hard), nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case last != nil:
		return fmt.Errorf("read quota: %w", last)
	default:
		return &placement.PendingError{
			Step:   "put the quota in force on " + t.connection.Cluster,
			Detail: "the cluster's quota controller has not taken it over yet",
		}
	}
}

func enforces(current corev1.ResourceQuota, hard corev1.ResourceList) bool {
	for name, want := range hard {
		if have, ok := current.Status.Hard[name]; !ok || have.Cmp(want) != 0 {
			return false
		}
	}
	return true
}
