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

// Speaks returns the protocol of a public port.
func (p *WorkloadPort) Speaks() AppProtocol { return cmp.Or(p.AppProtocol, AppProtocolHTTP) }

// IsConsumers reports whether the consumer itself runs the component's pods: the ones with the label
// LabelComponent. Plans of kind workload have no such component; see ExposedPort.
func (c *WorkloadComponent) IsConsumers() bool {
	return c.Container == nil && c.Manifests == nil && c.Chart == nil
}

// Speaks returns the protocols of the public ports of a component, or of all components if none is named: each
// once, sorted. It is empty if there are no public ports.
func (w *WorkloadPlan) Speaks(component string) []AppProtocol {
	var spoken []AppProtocol
	for i := range w.Components {
		c := &w.Components[i]
		if p := c.PublicPort(); p != nil && (component == "" || component == c.Name) {
			spoken = append(spoken, p.Speaks())
		}
	}
	slices.Sort(spoken)
	return slices.Compact(spoken)
}

// TCP returns the components with a public port that speaks TCP.
func (w *WorkloadPlan) TCP() (components []string) {
	for i := range w.Components {
		c := &w.Components[i]
		if p := c.PublicPort(); p != nil && p.Speaks() == AppProtocolTCP {
			components = append(components, c.Name)
		}
	}
	return components
}

// IsPublic reports whether a component of the workload has a public port.
func (w *WorkloadPlan) IsPublic() bool { return len(w.Speaks("")) > 0 }

// IsBackedUp reports whether all that the workload keeps in volumes can be backed up. Of components that are
// not containers nobody knows.
func (w *WorkloadPlan) IsBackedUp() bool {
	return w.HasBackup() && !slices.ContainsFunc(w.Components, func(c WorkloadComponent) bool {
		return c.Container == nil || len(c.Container.Volumes) > 0 && c.Container.Backup == nil
	})
}

// KeptBackups returns the number of complete backups that can be restored.
func (w *WorkloadPlan) KeptBackups() int {
	const usual = 7
	if w.Backups == nil || w.Backups.Keep == 0 {
		return usual
	}
	return int(w.Backups.Keep)
}

// HasVolumes reports whether the component may have volumes. Of components that are not containers nobody knows.
func (c *WorkloadComponent) HasVolumes() bool {
	return c.Container == nil || len(c.Container.Volumes) > 0
}

// HasBackup reports whether a component of the workload has a backup.
func (w *WorkloadPlan) HasBackup() bool {
	return slices.ContainsFunc(w.Components, func(c WorkloadComponent) bool { return c.Container != nil && c.Container.Backup != nil })
}
