package member

import (
	"maps"
	"slices"
)

// Opened returns the names of the connections that are kept.
func (c *Connections) Opened() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.open))
}
