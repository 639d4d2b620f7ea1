package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/placement/delivery"
	"github.com/sluice-dev/sluice/placement/tenant"
)

// quotaPatience limits the wait for a cluster's quota controller, within one call.
const quotaPatience = 2 * time.Second

// currentQuota reads the quota; it is empty if there is none.
func (t *target) currentQuota(ctx context.Context) (current corev1.ResourceQuota, err error) {
	err = tenant.OnceAllowed(ctx, func(ctx context.Context) error {
		return t.Connection.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: objectName}, &current)
	})
	if client.IgnoreNotFound(err) != nil {
		return current, fmt.Errorf("read quota: %w", err)
	}
	return current, nil
}

// checkUse refuses a plan below what is in use. A consumer may add workloads between this check
// and the new quota, and then uses more than it. The quota then refuses any more, as for every
// quota that shrinks in Kubernetes.
func (t *target) checkUse(current corev1.ResourceQuota) error {
	if reason := exceeded(current, t.hard); reason != "" {
		return &delivery.RefusedError{
			Reason: reason + " on " + t.Connection.Cluster, Remedy: "delete workloads first",
			Consumer: reason + ": delete workloads first", Repeatable: true,
		}
	}
	return nil
}

// awaitQuota waits until the cluster enforces the quota. Admission counts by status.hard, which
// a controller of the cluster copies from spec. Before that, a consumer could use more than was
// reserved.
func (t *target) awaitQuota(ctx context.Context, hard corev1.ResourceList) error {
	patient, cancel := context.WithTimeout(ctx, quotaPatience)
	defer cancel()
	var last error
	err := tenant.Soon.DelayFunc().Until(patient, true, false, func(context.Context) (bool, error) {
		var current corev1.ResourceQuota
		last = t.Connection.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: objectName}, &current)
		return last == nil && enforces(current, hard), nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case last != nil:
		return fmt.Errorf("read quota: %w", last)
	default:
		return &delivery.PendingError{
			Step:   "put the quota in force on " + t.Connection.Cluster,
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
