package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// idlePoll is the time between two reads of a Lease.
const idlePoll = 500 * time.Millisecond

// idle returns a function whose error, with the remedy, says that a Sluice leads in a namespace of a cluster. If the Lease
// has a holder, the function waits for its renewal. A Lease that was found to be left behind is waited for once.
func idle(config *rest.Config, namespace string, say func(format string, arguments ...any)) (func(context.Context) error, error) {
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	read := func(ctx context.Context) (*coordinationv1.LeaseSpec, error) {
		lease, err := api.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("read whether Sluice runs there: %w", err)
		}
		return &lease.Spec, nil
	}
	var left *coordinationv1.LeaseSpec
	return func(ctx context.Context) error {
		first, err := read(ctx)
		if err != nil || !isHeld(first) || equality.Semantic.DeepEqual(first, left) {
			return err
		}
		say("Waiting %s to see whether %s, which led last on that cluster, still runs", patienceFor(first), *first.HolderIdentity)
		now, err := renewed(ctx, first, read)
		switch {
		case err != nil:
			return err
		case now == nil:
			left = first
			return nil
		case !isHeld(now):
			return nil
		}
		return fmt.Errorf("a Sluice runs on that cluster (%s leads): stop it (kubectl -n %s scale deployment sluice --replicas=0), and repeat the command when its pods are gone",
			*now.HolderIdentity, namespace)
	}, nil
}

// patienceFor returns twice the length of a Lease: meanwhile a leader renews it, or another replica takes over from one that
// died, after at most 1.88 times the length (see lease.Of).
func patienceFor(lease *coordinationv1.LeaseSpec) time.Duration {
	return 2*time.Duration(*lease.LeaseDurationSeconds)*time.Second + time.Second
}

// renewed reads a Lease that is held until it is another one than at first, and returns it; nil if nobody has renewed it, or
// released it, within its patience. It compares no clocks.
func renewed(ctx context.Context, first *coordinationv1.LeaseSpec, read func(context.Context) (*coordinationv1.LeaseSpec, error)) (*coordinationv1.LeaseSpec, error) {
	tick := time.NewTicker(idlePoll)
	defer tick.Stop()
	for end := time.Now().Add(patienceFor(first)); !time.Now().After(end); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		if now, err := read(ctx); err != nil || !equality.Semantic.DeepEqual(now, first) {
			return now, err
		}
	}
	return nil, nil
}

// isHeld reports whether a Lease has a holder, which may have ended without releasing it.
func isHeld(lease *coordinationv1.LeaseSpec) bool {
	return lease.HolderIdentity != nil && *lease.HolderIdentity != "" && lease.LeaseDurationSeconds != nil
}
