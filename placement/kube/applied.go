package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// applyCheck is the shortest time between two looks at a workload that is applied and starting, unless a change of
// what it consists of triggers one. What pods wait for is found by these looks only, and an operation does not say what it
// waits for before it has waited as long.
const applyCheck = 2 * time.Second

// digest returns a digest of everything that deliver applies.
func (t *target) digest(objects []*unstructured.Unstructured) (string, error) {
	all, err := json.Marshal([]any{objects, t.Agreed, t.limits(), t.hard, t.of.Replacing, t.of.Preparing})
	if err != nil {
		return "", fmt.Errorf("compute the digest of what is applied: %w", err)
	}
	sum := sha256.Sum256(all)
	return hex.EncodeToString(sum[:]), nil
}

// applied adds to an error that only waits that everything is applied.
func applied(err error, digest string) error {
	if pending := (*delivery.PendingError)(nil); errors.As(err, &pending) {
		pending.Applied, pending.NotBefore = digest, applyCheck
	}
	return err
}

// look is settle for a workload that is applied already. It reads those objects that do not work just by
// being there. The error is NotFound if one is gone.
func (t *target) look(ctx context.Context, objects []*unstructured.Unstructured) error {
	live := slices.Clone(objects)
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i, o := range objects {
		result, err := status.Compute(o)
		if err != nil {
			return fmt.Errorf("read the state of %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if result.Status == status.CurrentStatus && !workload.IsRoute(o) {
			continue
		}
		live[i] = &unstructured.Unstructured{}
		live[i].SetGroupVersionKind(o.GroupVersionKind())
		group.Go(func() error {
			if err := t.Connection.Client.Get(inner, client.ObjectKeyFromObject(o), live[i]); err != nil {
				return fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return t.settle(ctx, live)
}
