package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/placement/kube"
	"github.com/sluice-dev/sluice/placement/registration"
)

// registrar registers clusters for an operator, and prints what it does.
type registrar struct {
	hub      registration.Hub
	store    registration.Store
	out      io.Writer
	manifest kube.ManifestOptions
	patience time.Duration // until the cluster is ready; 0 does not wait
}

// registrar returns one for the hub that the flags name.
func (h *hubFlags) registrar(cmd *cobra.Command) (*registrar, error) {
	c, err := h.client(cmd)
	if err != nil {
		return nil, err
	}
	store, err := h.store(c)
	if err != nil {
		return nil, err
	}
	return &registrar{hub: registration.Hub{Client: c, Owner: fieldOwner}, store: store, out: cmd.OutOrStdout()}, nil
}

// store returns where the hub keeps the access to member clusters: sealed with the embedded
// hub's keyset, which is on this machine, or in Secrets.
func (h *hubFlags) store(c client.Client) (registration.Store, error) {
	if !h.embedded() {
		return registration.Secrets{Client: c, Owner: fieldOwner}, nil
	}
	keys, err := seal.Open(h.keysetPath())
	if err != nil {
		return nil, err
	}
	return registration.Sealed{Keys: keys}, nil
}

// register registers the cluster that an administrator reaches, and waits until it is ready.
// otherServer means that the administrator's URL is to be used, even if Sluice knows another one.
func (r *registrar) register(ctx context.Context, key client.ObjectKey, admin *rest.Config, otherServer bool, change func(*v1alpha1.MemberCluster) error) error {
	one := &registration.Registration{
		Hub: r.hub, Store: r.store, Admin: admin, Manifest: r.manifest, OtherServer: otherServer,
		Progress: func(step string) { fmt.Fprintf(r.out, "cluster %s: %s\n", key.Name, step) },
	}
	cluster, err := one.Register(ctx, key, change)
	if err != nil {
		return err
	}
	if r.patience == 0 {
		fmt.Fprintf(r.out, "cluster %s: registered\n", key.Name)
		return nil
	}
	return awaitCluster(ctx, r.out, r.hub.Client, cluster, r.patience)
}

// awaitCluster waits until the controller reports the cluster as ready, and prints what it
// waits for.
func awaitCluster(ctx context.Context, w io.Writer, c client.Client, cluster *v1alpha1.MemberCluster, patience time.Duration) error {
	if err := awaitReady(ctx, w, c, "cluster", cluster, patience); err != nil {
		return err
	}
	has := count(int(cluster.Status.Nodes), "node")
	if cluster.ReaderName() != v1alpha1.ReaderNodes {
		has = "capacity " + cluster.ReaderName()
	}
	fmt.Fprintf(w, "cluster %s: ready, %s, allocatable %s\n", cluster.Name, has, quantities(cluster.Status.Allocatable))
	if why := nodeless(cluster); why != "" {
		fmt.Fprintf(w, "cluster %s: %s\n", cluster.Name, why)
	}
	return nil
}

// awaitReady waits until the controller reports a member cluster as ready; what it is called in messages.
func awaitReady(ctx context.Context, w io.Writer, c client.Client, what string, cluster *v1alpha1.MemberCluster, patience time.Duration) error {
	generation, told := cluster.Generation, ""
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return false, err
		}
		ready := viewCondition(cluster.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.generation < generation {
			return false, nil
		}
		if ready.message != told && !ready.isTrue {
			told = ready.message
			fmt.Fprintf(w, "%s %s: not ready yet: %s\n", what, cluster.Name, told)
		}
		return ready.isTrue, nil
	})
	if wait.Interrupted(err) {
		if told == "" {
			told = "no controller has looked at it: is `sluice serve` running?"
		}
		return fmt.Errorf("%s %s: registered, but not ready after %s: %s", what, cluster.Name, patience, told)
	}
	if err != nil {
		return fmt.Errorf("%s %s: wait until it is ready: %w", what, cluster.Name, err)
	}
	return nil
}
