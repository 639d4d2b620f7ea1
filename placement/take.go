package placement

import (
	"fmt"
	"maps"
	"slices"
)

// Take is Reserve for an instance that is on its clusters already, and of which nothing is reserved yet. It is an error,
// and nothing is reserved, if a cluster is not in the inventory, or if another instance has one of the hosts or ports.
// It does not ask for room, because the instance is there.
func (inv *Inventory) Take(h Holding) error {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	s := inv.now()
	for _, cluster := range slices.Sorted(maps.Keys(h.Held)) {
		if s.Cluster(cluster) == nil {
			return fmt.Errorf("cluster %s is not known", cluster)
		}
		for _, other := range s.Reservations(cluster) {
			for _, port := range other.Ports {
				if other.Instance != h.Instance && slices.Contains(slices.Collect(maps.Values(h.Ports[cluster])), port) {
					return fmt.Errorf("port %d of %s is of %s now", port, cluster, other.Instance)
				}
			}
		}
	}
	for _, host := range h.Hosts {
		for _, held := range rows[Reservation](s.store, tableReservation, indexHost, host) {
			if held.Instance != h.Instance {
				return fmt.Errorf("host %s is of %s now", host, held.Instance)
			}
		}
	}
	inv.settle(h)
	return nil
}
