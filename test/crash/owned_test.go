//go:build faults

package crash

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/test/controlplane"
)

// An order of a cluster, and then of what is delivered to it: the cluster becomes its owner's own, Sluice peers it with
// the provider's, and refuses to take it back while it is in use. Nothing is left in the end.
func TestAnOrderedClusterIsPeered(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	m := newMakers(ctx, t, stop)
	provider := startMembers(t, "provider").members["provider"]
	m.members["provider"] = provider
	far := withLiqo(ctx, t, provider.config(t), "provider-id")
	for _, command := range [][]string{
		{"cluster", "add", "provider", "--from-kubeconfig", provider.kubeconfig, "--driver", "liqo", "--gateway-service", "NodePort"},
		{"catalog", "apply", "-f", "testdata/owned.yaml"},
	} {
		if err := m.operate(ctx, command...); err != nil {
			t.Fatal(err)
		}
	}
	ordered := func(plan string) (*instance, map[string]any) {
		i := &instance{bed: m.bed, id: plan, name: v1alpha1.InstanceName(platformName, plan), service: "owned", plan: plan}
		return i, map[string]any{"service_id": "owned", "plan_id": plan, "organization_guid": "organization", "space_guid": "space"}
	}
	own, ofCluster := ordered("cluster-of-mine")
	m.step(ctx, t, "order a cluster", func(ctx context.Context) error {
		if _, err := m.send(ctx, http.MethodPut, own.path(), async, ofCluster, http.StatusAccepted); err != nil {
			return err
		}
		var made *controlplane.ControlPlane
		err := until(ctx, func(context.Context) error {
			if made = m.management.Workload(v1alpha1.MemberNamespace(own.name), v1alpha1.InstanceClusterName(own.name)); made == nil {
				return errors.New("it has no API server yet")
			}
			return nil
		})
		if err != nil {
			return err
		}
		connect(t.Context(), withLiqo(ctx, t, made.Config(), "own-id"), far)
		return m.succeed(ctx, http.MethodPut, own.path(), async, ofCluster)
	})
	network, ofNetwork := ordered("network")
	m.step(ctx, t, "order what is delivered to it", func(ctx context.Context) error {
		if err := m.succeed(ctx, http.MethodPut, network.path(), async, ofNetwork); err != nil {
			return err
		}
		seen, err := network.inHub(ctx)
		if err != nil {
			return err
		}
		p := seen.Status.Delivered.Decision.Placements
		if len(p) != 1 || p[0].Cluster != "provider" || p[0].Peering == nil || p[0].Peering.Consumer != v1alpha1.InstanceClusterName(own.name) {
			return fmt.Errorf("it is placed as %+v", p)
		}
		return m.peerings(ctx, 1)
	})
	m.step(ctx, t, "no deprovision while it is in use", func(ctx context.Context) error {
		a, err := m.send(ctx, http.MethodDelete, own.path(), own.query(), nil, http.StatusUnprocessableEntity)
		if err == nil && !strings.Contains(a.text("description"), "by the service instances network: delete them first") {
			err = fmt.Errorf("it says %q", a.text("description"))
		}
		return err
	})
	m.step(ctx, t, "deprovision both", func(ctx context.Context) error {
		if err := m.remove(ctx, network.path(), network.query()); err != nil {
			return err
		}
		if err := m.peerings(ctx, 0); err != nil {
			return err
		}
		return m.remove(ctx, own.path(), own.query())
	})
	m.step(ctx, t, "nothing is left", func(ctx context.Context) error {
		if err := m.operate(ctx, "cluster", "remove", "provider"); err != nil {
			return err
		}
		return until(ctx, m.left)
	})
}

// peerings waits until there are so many.
func (b *bed) peerings(ctx context.Context, want int) error {
	return b.withHub(ctx, func(hub client.Client) error {
		var list v1alpha1.PeeringList
		err := hub.List(ctx, &list, client.InNamespace(namespace))
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("there are %d peerings, want %d", len(list.Items), want)
		}
		return err
	})
}
