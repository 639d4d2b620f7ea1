package elastic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// makeMore begins the clusters that waiting instances need, and sets their promises.
func (e *Controller) makeMore(ctx context.Context, t *template, expects *expectations, has *fleet, coming map[string]string, promises map[string]string) error {
	tried := &trial{template: t, has: t.measured(e.Inventory.Snapshot(), has), room: max(int(t.Elastic.AtMost)-len(has.instances), 0), expected: expects.orders}
	for name := range coming {
		tried.coming = append(tried.coming, name)
	}
	slices.Sort(tried.coming)
	snapshot := e.Inventory.Snapshot()
	for i := range has.instances {
		instance := &has.instances[i]
		if c := t.growing(snapshot, instance, has.member(instance)); c != nil {
			tried.growing = append(tried.growing, c)
			coming[c.Name] = "it grows" // for the promises; the cluster exists already
		}
	}
	tried.growths = t.growths(snapshot, has)
	wanted := tried.demand(e.Inventory)
	begin, hindrance, err := e.mayBegin(t, has, wanted.more)
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
	if err := errors.Join(err, e.explain(ctx, t, expects, &wanted, hindrance)); err != nil {
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
	taken := map[string]bool{}
	for i := range has.instances {
		taken[has.instances[i].Name] = true
	}
	for ordinal := 1; begin > 0; ordinal++ {
		order := t.order(e.Namespace, ordinal)
		if taken[order.Name] {
			continue
		}
		log.FromContext(ctx).Info("Creating a cluster", "policy", t.Name, "cluster", v1alpha1.InstanceClusterName(order.Name), "for", len(wanted.waits), "expected", wanted.come)
		err := e.Client.Create(ctx, order)
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache does not show it yet
		}
		if err != nil {
			return fmt.Errorf("order a cluster: %w", err)
		}
		begin--
	}
	return nil
}

// grow updates a cluster to more workers, as its owner would.
func (e *Controller) grow(ctx context.Context, g *growth, workers int) error {
	parameters := map[string]any{}
	if raw := g.instance.Spec.Desired.Raw(); raw != nil {
		if err := json.Unmarshal(raw, &parameters); err != nil {
			return fmt.Errorf("read the parameters of %s: %w", g.instance.Name, err)
		}
	}
	pools, _ := parameters["workers"].(map[string]any)
	if pools == nil {
		pools = map[string]any{}
	}
	pools[g.pool] = int(g.now) + workers
	parameters["workers"] = pools
	document, err := json.Marshal(parameters)
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

// mayBegin returns how many of the needed clusters may be begun now, and what prevents the
// others.
func (e *Controller) mayBegin(t *template, has *fleet, needed int) (begin int, hindrance string, err error) {
	if needed == 0 {
		return 0, "", nil
	}
	spent := int64(0)
	for i := range has.instances {
		last := &has.instances[i]
		if until := t.coolsUntil(last); until.After(e.Clock.Now()) {
			hindrance = "the last one was begun only at " + last.CreationTimestamp.UTC().Format(time.TimeOnly)
			if last.Status.IsFailedProvision() {
				hindrance = "the last one failed: " + last.Status.Operation.Description
			}
			return 0, hindrance + "; the next one waits until " + until.UTC().Format(time.TimeOnly) + " UTC", nil
		}
		if d := has.instances[i].Status.Decision; d != nil && len(d.Placements) > 0 && d.Placements[0].PricePerHour != nil {
			spent += d.Placements[0].PricePerHour.ScaledValue(-9)
		}
	}
	fork := e.Inventory.Fork()
	for begin < needed {
		order := t.order(e.Namespace, len(has.instances)+begin+1)
		r, err := placement.NewRequest(order.Name, t.plan, t.parameters)
		if err != nil {
			return begin, "", err
		}
		r = fork.Snapshot().Govern(r, placement.ConsumerOf(order))
		r.At = e.Clock.Now()
		d, err := fork.Place(r)
		if unplaceable, ok := placement.AsUnplaceable(err); ok {
			return begin, "no management cluster accepts it: " + unplaceable.Error(), nil
		}
		if err != nil {
			return begin, "", err
		}
		budget := placement.PriceOf(t.Elastic.Budget)
		if price := d.Placements[0].Price; budget != nil && price != nil {
			if price.Currency != budget.Currency {
				return begin, fmt.Sprintf("it costs %s, and the budget is in %s", price, budget.Currency), nil
			}
			if spent += price.NanoPerHour; spent > budget.NanoPerHour {
				return begin, fmt.Sprintf("with it all would cost %s, and the budget is %s", placement.Price{Currency: budget.Currency, NanoPerHour: spent}, budget), nil
			}
		}
		begin++
	}
	return begin, "", nil
}
