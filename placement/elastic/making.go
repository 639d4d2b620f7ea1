package elastic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// makeMore begins the clusters that waiting instances need, and sets their promises.
func (e *Controller) makeMore(ctx context.Context, t *template, expects *expectations, has *fleet, coming map[string]string, promises map[string]string) error {
	snapshot := e.Inventory.Snapshot()
	t.measure(snapshot, has)
	tried := &trial{template: t, room: max(int(t.Elastic.AtMost)-len(has.instances), 0), expected: expects.orders}
	for name := range coming {
		tried.coming = append(tried.coming, name)
	}
	slices.Sort(tried.coming)
	for i := range has.instances {
		instance := &has.instances[i]
		if c := t.growing(snapshot, instance, has.member(instance)); c != nil {
			tried.growing = append(tried.growing, c)
			coming[c.Name] = "it grows" // for the promises; the cluster exists already
		}
	}
	tried.growths = t.growths(snapshot, has)
	wanted, allowed, hindered, err := e.permitted(tried, has)
	if err != nil {
		return err
	}
	begin, hindrance, err := e.mayBegin(allowed, has, wanted.more)
	for instance, why := range hindered {
		promises[instance] = why
	}
	for instance, cluster := range wanted.waits {
		switch progress, made := coming[cluster]; {
		case wanted.grow[cluster] > 0:
			promises[instance] = fmt.Sprintf("policy %s grows cluster %s for it, workers added: %d", t.Name, cluster, wanted.grow[cluster])
		case made:
			promises[instance] = fmt.Sprintf("policy %s creates cluster %s for it: %s", t.Name, cluster, progress)
		case hindrance != "":
			promises[instance] = fmt.Sprintf("policy %s would create a cluster for it, but %s", t.Name, hindrance)
		default:
			promises[instance] = fmt.Sprintf("policy %s creates a cluster for it", t.Name)
		}
	}
	if err := errors.Join(err, e.explain(ctx, t, expects, &wanted, cmp.Or(hindrance, allowed.hindrance))); err != nil {
		return err
	}
	for i := range tried.growths {
		g := &tried.growths[i]
		if workers := wanted.grow[g.cluster.Name]; workers > 0 {
			if err := e.grow(ctx, g, workers); err != nil {
				return err
			}
		}
	}
	for _, order := range begin {
		log.FromContext(ctx).Info("Creating a cluster", "policy", t.Name, "cluster", v1alpha1.InstanceClusterName(order.Name), "for", len(wanted.waits), "expected", wanted.come)
		err := e.Client.Create(ctx, order)
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache does not show it yet
		}
		if err != nil {
			return fmt.Errorf("order a cluster: %w", err)
		}
	}
	return nil
}

// grow updates a cluster to more workers, as its owner would.
func (e *Controller) grow(ctx context.Context, g *growth, workers int) error {
	document, err := g.parameters(workers)
	if err != nil {
		return err
	}
	log.FromContext(ctx).Info("Growing a cluster", "cluster", g.cluster.Name, "pool", g.pool, "from", g.now, "to", int(g.now)+workers)
	g.instance.Spec.Desired.Parameters = &runtime.RawExtension{Raw: document}
	err = e.Client.Update(ctx, g.instance) // a conflict is retried with the new state
	if err != nil {
		return fmt.Errorf("grow cluster %s: %w", g.cluster.Name, err)
	}
	return nil
}
