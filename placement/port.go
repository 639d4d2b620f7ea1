package placement

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Public ports that speak TCP differ by their number, of which a cluster has a range. How many are free is a
// resource like others (v1alpha1.ResourcePublicPorts), so that filters, reservations and waiting need nothing of
// their own. Which one an instance gets is chosen here, once its clusters are.

// Ports are the public ports of an instance on one cluster, by component.
type Ports map[string]int32

// takeTCP adds the public ports that speak TCP to what a request reserves.
func takeTCP(resources Resources, count int) Resources {
	if count == 0 {
		return resources
	}
	resources = maps.Clone(resources)
	if resources == nil {
		resources = Resources{}
	}
	resources[v1alpha1.ResourcePublicPorts] += int64(count)
	return resources
}

// givePorts chooses the public ports of each placement. It returns nil, unless a cluster has too few: because its
// range was changed while instances have ports outside of the new one.
func (d *Decision) givePorts(r Request, s *Snapshot) *UnplaceableError {
	if len(r.TCP) == 0 || r.atBest {
		return nil
	}
	for i := range d.Placements {
		p := &d.Placements[i]
		components := r.tcpOn(p)
		if p.PublicPorts = s.portsFor(r.ID, p.Cluster, components); len(p.PublicPorts) < len(components) {
			return &UnplaceableError{
				Decision: Decision{Considered: d.Considered}, Asked: r.ClusterCount(),
				Why: fmt.Sprintf("%s has too few ports for plain TCP that are free", p.Cluster),
			}
		}
	}
	return nil
}

// tcpOn returns the components at a placement that have a public port that speaks TCP.
func (r Request) tcpOn(p *Placement) []string {
	return slices.DeleteFunc(slices.Clone(r.TCP), func(name string) bool {
		return len(p.Components) > 0 && !slices.Contains(p.Components, name)
	})
}

// portsFor chooses ports for components of an instance on a cluster. Components keep the port that they have.
// Others get one that the instance gives back, or else one that is free: not the one that was given back last,
// because clients may still believe that another instance is there. It returns fewer if there are too few.
func (s *Snapshot) portsFor(instance, cluster string, components []string) Ports {
	at, found := s.find(cluster)
	if !found || at.cluster().Exposure == nil || at.cluster().Exposure.TCP == nil {
		return nil
	}
	within := at.cluster().Exposure.TCP
	taken, own, ports := map[int32]bool{}, Ports{}, Ports{}
	for _, held := range s.Reservations(cluster) {
		if held.Instance == instance {
			own = held.Ports
			continue
		}
		for _, port := range held.Ports {
			taken[port] = true
		}
	}
	usable := func(port int32) bool { return within.Has(port) && !taken[port] }
	give := func(component string, port int32) { ports[component], taken[port] = port, true }
	for _, name := range components {
		if port, has := own[name]; has && usable(port) {
			give(name, port)
		}
	}
	given := slices.DeleteFunc(slices.Sorted(maps.Values(own)), func(port int32) bool { return !usable(port) })
	for _, name := range components {
		if _, has := ports[name]; has {
			continue
		}
		if len(given) > 0 {
			give(name, given[0])
			given = given[1:]
			continue
		}
		start := int32(hash64(instance+"/"+name) % uint64(within.Len())) // a range has at most 64 ports
		for i := range int32(within.Len()) {
			if port := within.First + (start+i)%int32(within.Len()); usable(port) {
				give(name, port)
				break
			}
		}
	}
	return ports
}

// portsOf returns the public ports that an instance has by its status, by cluster. Those of the decision being
// delivered come first.
func portsOf(status *v1alpha1.ServiceInstanceStatus) map[string]Ports {
	held := map[string]Ports{}
	for _, p := range status.Everywhere() {
		held[p.Cluster] = Ports(p.PublicPorts).and(held[p.Cluster])
	}
	return held
}

// and returns ports and those of a component that has others, which win.
func (p Ports) and(others Ports) Ports {
	if len(p) == 0 {
		return others
	}
	all := maps.Clone(p)
	maps.Copy(all, others)
	return all
}
