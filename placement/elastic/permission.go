package elastic

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/placement"
)

// limits are the policy's budget, and the room on the management clusters. Each cluster that they allow counts for the
// next.
type limits struct {
	template  *template
	now       time.Time
	inventory *placement.Inventory // a copy
	// budget is nil if there is none, and spent is in its currency.
	budget *placement.Price
	spent  int64
	// foreign says which cluster has a price in another currency; empty if none has.
	foreign string
	// hindrance is the last reason why a cluster may not grow.
	hindrance string
}

// newLimits counts the clusters that there are, also those that are not decided yet.
func (e *Controller) newLimits(t *template, has *fleet) (*limits, error) {
	l := &limits{template: t, now: e.Clock.Now(), inventory: e.Inventory.Fork(), budget: placement.PriceOf(t.Elastic.Budget)}
	for i := range has.instances {
		instance := &has.instances[i]
		price := priceOf(instance)
		if instance.Status.Decision == nil && instance.DeletionTimestamp.IsZero() && !instance.Status.IsFailedProvision() && instance.Spec.Desired.PlanID == t.plan.ID {
			r, expected, hindrance, err := l.try(instance, instance.Spec.Desired.Raw(), l.inventory.ClustersHeld(instance.Name))
			if err == nil && hindrance == "" {
				_, err = l.inventory.Place(r)
			}
			if err != nil {
				return nil, err
			}
			price = expected
		}
		switch {
		case price == nil || l.budget == nil:
		case price.Currency != l.budget.Currency:
			l.foreign = fmt.Sprintf("cluster %s costs %s, and the budget is in %s", v1alpha1.InstanceClusterName(instance.Name), price, l.budget.Currency)
		default:
			l.spent += price.NanoPerHour
		}
	}
	return l, nil
}

// priceOf returns the price of a cluster, as it was decided; nil if it has none.
func priceOf(instance *v1alpha1.ServiceInstance) *placement.Price {
	if d := instance.Status.Decision; d != nil && len(d.Placements) > 0 && d.Placements[0].PricePerHour != nil {
		p := &d.Placements[0]
		return &placement.Price{Currency: p.Currency, NanoPerHour: p.PricePerHour.ScaledValue(resource.Nano)}
	}
	return nil
}

// try returns the request for a cluster with these parameters and its price, or what prevents it. current is the management
// cluster of one that exists.
func (l *limits) try(instance *v1alpha1.ServiceInstance, parameters json.RawMessage, current []string) (r placement.Request, price *placement.Price, hindrance string, err error) {
	if r, err = placement.NewRequest(instance.Name, l.template.plan, parameters); err != nil {
		return r, nil, "", err
	}
	snapshot := l.inventory.Snapshot()
	r = snapshot.Govern(r, placement.ConsumerOf(instance))
	r.At, r.Current = l.now, current
	d, err := placement.Place(r, snapshot)
	unplaceable, ok := placement.AsUnplaceable(err)
	switch {
	case ok && len(current) > 0:
		return r, nil, "its management cluster does not accept it: " + unplaceable.Error(), nil
	case ok:
		return r, nil, "no management cluster accepts it: " + unplaceable.Error(), nil
	case err != nil:
		return r, nil, "", err
	}
	return r, d.Placements[0].Price, "", nil
}

// allow counts a cluster with these parameters, or returns what prevents it, as try does.
func (l *limits) allow(instance *v1alpha1.ServiceInstance, parameters json.RawMessage, current []string) (hindrance string, err error) {
	r, price, hindrance, err := l.try(instance, parameters, current)
	if err != nil || hindrance != "" {
		return hindrance, err
	}
	if l.budget != nil && price != nil {
		spent := l.spent + price.NanoPerHour
		if was := priceOf(instance); was != nil {
			spent -= was.NanoPerHour
		}
		switch {
		case price.Currency != l.budget.Currency:
			return fmt.Sprintf("it costs %s, and the budget is in %s", price, l.budget.Currency), nil
		case l.foreign != "":
			return l.foreign, nil
		case spent > l.budget.NanoPerHour:
			return fmt.Sprintf("with it all would cost %s, and the budget is %s", placement.Price{Currency: l.budget.Currency, NanoPerHour: spent}, l.budget), nil
		}
		l.spent = spent
	}
	_, err = l.inventory.Place(r)
	return "", err
}

// mayBegin returns the orders of the needed clusters that may be begun now, and what prevents the
// others.
func (e *Controller) mayBegin(l *limits, has *fleet, needed int) (begin []*v1alpha1.ServiceInstance, hindrance string, err error) {
	if needed == 0 {
		return nil, "", nil
	}
	t := l.template
	for i := range has.instances {
		last := &has.instances[i]
		if until := coolsUntil(t.Policy, last); until.After(l.now) {
			hindrance = "the last one was begun only at " + v1alpha1.CreatedOf(last).UTC().Format(time.TimeOnly)
			if last.Status.IsFailedProvision() {
				hindrance = "the last one failed: " + last.Status.Operation.Description
			}
			return nil, hindrance + "; the next one waits until " + until.UTC().Format(time.TimeOnly) + " UTC", nil
		}
	}
	taken := map[string]bool{}
	for i := range has.instances {
		taken[has.instances[i].Name] = true
	}
	for ordinal := 1; len(begin) < needed; ordinal++ {
		order := t.order(e.Namespace, ordinal)
		if taken[order.Name] {
			continue
		}
		if hindrance, err = l.allow(order, t.parameters, nil); hindrance != "" || err != nil {
			return begin, hindrance, err
		}
		begin = append(begin, order)
	}
	return begin, "", nil
}

// mayGrow returns how many of the needed workers may be added to a cluster now, and what prevents the others.
func (l *limits) mayGrow(g *growth, needed int) (workers int, hindrance string, err error) {
	for workers = needed; workers > 0; workers-- {
		parameters, err := g.parameters(workers)
		if err != nil {
			return 0, "", err
		}
		why, err := l.allow(g.instance, parameters, []string{g.manager()})
		if err != nil || why == "" {
			return workers, hindrance, err
		}
		if hindrance == "" {
			hindrance = why
		}
	}
	return 0, hindrance, nil
}

// permitted computes the demand again until all growth in it is allowed: without some growth, more clusters may be
// needed. It returns the limits that the growth leaves, and in hindered, by waiting instance, why a cluster does not grow
// for it.
func (e *Controller) permitted(tried *trial, has *fleet) (wanted demand, left *limits, hindered map[string]string, err error) {
	hindered = map[string]string{}
	full := map[string]bool{} // by management cluster; each time there is one more, or less growth
	why := ""
	for again := true; again; {
		again = false
		wanted = tried.demand(e.Inventory)
		if left, err = e.newLimits(tried.template, has); err != nil {
			return wanted, nil, hindered, err
		}
		workers := make([]int, len(tried.growths))
		for i := range tried.growths {
			g, hindrance := &tried.growths[i], ""
			name := g.cluster.Name
			if workers[i], hindrance, err = left.mayGrow(g, wanted.grow[name]); err != nil {
				return wanted, left, hindered, err
			}
			if hindrance == "" {
				continue
			}
			again, full[g.manager()], why = true, true, hindrance
			for instance, on := range wanted.waits {
				if on == name {
					hindered[instance] = fmt.Sprintf("policy %s would grow cluster %s for it, but %s", tried.template.Name, name, hindrance)
				}
			}
		}
		for i := range tried.growths {
			if g := &tried.growths[i]; full[g.manager()] {
				g.more = workers[i] // the policy's other clusters there need the same room and cost the same
			}
		}
	}
	left.hindrance = why
	return wanted, left, hindered, nil
}
