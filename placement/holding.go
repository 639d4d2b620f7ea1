package placement

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Holding is an instance's reservations, by cluster, and its owners.
type Holding struct {
	Instance string
	Consumer Consumer
	Held     map[string]Resources
	// Prices of what is held, by cluster, see Reservation.Prices.
	Prices map[string]Resources
	// Pods that it is meant to run, by cluster, see Request.LargestPods.
	Pods map[string][]Resources
	// Class is the priority class by which it can be displaced; empty if it cannot.
	Class string
	// Preemption is the room that is being made for it.
	Preemption *v1alpha1.Preemption
	// Hub through which it is reached; empty if there is none.
	Hub string
	// Hosts that it has asked for its public ports.
	Hosts []string
	// Ports are its public ports that speak TCP, by cluster.
	Ports map[string]Ports
	// holders are the names of a consumer that is not known otherwise.
	holders []string
}

// owners returns the names of the consumer in all scopes.
func (h *Holding) owners() []string {
	if h.Consumer == (Consumer{}) {
		return h.holders
	}
	return h.Consumer.holders()
}

// newHolding returns the holding of an instance that has no reservations.
func newHolding(instance string) Holding {
	return Holding{Instance: instance, Held: map[string]Resources{}, Prices: map[string]Resources{}, Pods: map[string][]Resources{}, Ports: map[string]Ports{}}
}

// reservations returns what is held on each cluster, in the order of their names.
func (h *Holding) reservations() (all []*Reservation) {
	holders := h.owners()
	for _, cluster := range slices.Sorted(maps.Keys(h.Held)) {
		all = append(all, &Reservation{
			Instance: h.Instance, Cluster: cluster, Resources: h.Held[cluster], Prices: h.Prices[cluster], Pods: h.Pods[cluster],
			Holders: holders, Class: h.Class, Hub: h.Hub, Hosts: h.Hosts, Ports: h.Ports[cluster],
		})
	}
	return all
}

// on adds a reservation on a cluster.
func (h *Holding) on(cluster string, amounts Resources, price *Price, pods []Resources) {
	h.Held[cluster], h.Prices[cluster], h.Pods[cluster] = amounts, price.counted(), pods
}

// HoldingOf returns the holding of an instance by its status.
func HoldingOf(instance *v1alpha1.ServiceInstance) Holding {
	h := Holding{
		Instance: instance.Name, Consumer: ConsumerOf(instance), Held: Ledger(&instance.Status), Prices: pricesIn(&instance.Status),
		Pods: podsIn(&instance.Status), Hub: instance.Status.Hub(), Hosts: hostsOf(&instance.Status), Ports: portsOf(&instance.Status),
	}
	if !instance.DeletionTimestamp.IsZero() {
		return h
	}
	h.Preemption = instance.Status.Preemption
	decided, delivered := instance.Status.Decision, instance.Status.Delivered
	underWay := instance.Status.Operation != nil && !instance.Status.IsFinished()
	if decided != nil && delivered != nil && !underWay && !instance.Status.IsPinned() && decided.Generation == delivered.Decision.Generation && !decided.Moves() {
		h.Class = delivered.Decision.PriorityClass
	}
	return h
}

// Decision returns a decision that holds the same, for an instance that is delivered by it.
func (h *Holding) Decision() *v1alpha1.Decision {
	d := &v1alpha1.Decision{PriorityClass: h.Class, Hosts: h.Hosts}
	for _, cluster := range slices.Sorted(maps.Keys(h.Held)) {
		p := v1alpha1.Placement{Cluster: cluster, Reserved: h.Held[cluster].List(), PublicPorts: h.Ports[cluster]}
		for _, pod := range h.Pods[cluster] {
			p.LargestPods = append(p.LargestPods, pod.List())
		}
		if h.Hub != "" {
			p.Peering = &v1alpha1.PlacementPeering{Hub: h.Hub}
		}
		for i, name := range h.Prices[cluster].names() {
			if i > 0 { // it was decided in another currency than it is delivered
				d.Placements, p = append(d.Placements, p), v1alpha1.Placement{Cluster: cluster}
			}
			p.Currency = strings.TrimPrefix(string(name), pricePrefix)
			p.PricePerHour = resource.NewScaledQuantity(h.Prices[cluster][name], resource.Nano)
		}
		d.Placements = append(d.Placements, p)
	}
	return d
}

// Ledger returns what an instance's status reserves, by cluster. It is the larger, for each
// resource, of the decision being delivered and the one last delivered, because during an
// update a cluster may carry either. What a decision has replaced counts as well, and what volumes have beyond it.
func Ledger(status *v1alpha1.ServiceInstanceStatus) map[string]Resources {
	held := map[string]Resources{}
	for _, decision := range status.Decisions() {
		for _, p := range decision.Placements {
			held[p.Cluster] = held[p.Cluster].max(heldBy(&p)).max(ResourcesOf(p.Replaced))
		}
	}
	for i := range status.Left {
		left := &status.Left[i]
		held[left.Cluster] = held[left.Cluster].max(heldBy(&left.Placement))
	}
	return held
}

// heldBy returns what a placement reserves, and what its volumes have beyond that.
func heldBy(p *v1alpha1.Placement) Resources {
	held := ResourcesOf(p.Reserved)
	held.Add(ResourcesOf(p.Grown), 1)
	return held
}

// pricesIn returns what an instance's reservations cost, by cluster: the larger of the decision being delivered and the one
// last delivered.
func pricesIn(status *v1alpha1.ServiceInstanceStatus) map[string]Resources {
	prices := map[string]Resources{}
	for _, decision := range status.Decisions() {
		for _, p := range decision.Placements {
			if p.PricePerHour != nil {
				prices[p.Cluster] = prices[p.Cluster].max(Resources{priceIn(p.Currency): p.PricePerHour.ScaledValue(resource.Nano)})
			}
		}
	}
	return prices
}

// podsIn returns the pods of an instance's status that are meant to run, by cluster: of each decision and
// of what is left.
func podsIn(status *v1alpha1.ServiceInstanceStatus) map[string][]Resources {
	pods := map[string][]Resources{}
	for _, p := range status.Everywhere() {
		if some := podsOf(p.LargestPods); len(some) > 0 {
			pods[p.Cluster] = withPods(pods[p.Cluster], some)
		}
	}
	return pods
}

// withPods returns pods and those of others that are not among them. It changes neither.
func withPods(pods, others []Resources) []Resources {
	for _, pod := range others {
		if !slices.ContainsFunc(pods, func(p Resources) bool { return maps.Equal(p, pod) }) {
			pods = append(slices.Clip(pods), pod)
		}
	}
	return pods
}
