package v1alpha1

import (
	"cmp"
	"slices"
)

// LabelComponent names the component of a workload that an object belongs to.
const LabelComponent = "sluice.dev/component"

// ServiceName is the name of the Service that serves the component's ports.
func (c *WorkloadComponent) ServiceName() string { return cmp.Or(c.Service, c.Name) }

// PublicPort returns the port of the component that everyone reaches; nil if there is none.
func (c *WorkloadComponent) PublicPort() *WorkloadPort {
	for i := range c.Ports {
		if c.Ports[i].Reach == ReachPublic {
			return &c.Ports[i]
		}
	}
	return nil
}

// HasPublic reports whether the component of that name has a public port.
func (w *WorkloadPlan) HasPublic(component string) bool {
	return slices.ContainsFunc(w.Components, func(c WorkloadComponent) bool { return c.Name == component && c.PublicPort() != nil })
}

// IsPublic reports whether a component of the workload has a public port.
func (w *WorkloadPlan) IsPublic() bool {
	return slices.ContainsFunc(w.Components, func(c WorkloadComponent) bool { return c.PublicPort() != nil })
}

// IsBackedUp reports whether all that the workload keeps in volumes can be backed up. Of components that are
// not containers nobody knows.
func (w *WorkloadPlan) IsBackedUp() bool {
	return w.HasBackup() && !slices.ContainsFunc(w.Components, func(c WorkloadComponent) bool {
		return c.Container == nil || len(c.Container.Volumes) > 0 && c.Container.Backup == nil
	})
}

// HasBackup reports whether a component of the workload has a backup.
func (w *WorkloadPlan) HasBackup() bool {
	return slices.ContainsFunc(w.Components, func(c WorkloadComponent) bool { return c.Container != nil && c.Container.Backup != nil })
}
