package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// mostWorkload is the greatest size of a workload plan in JSON, in bytes. Each instance keeps a copy.
const mostWorkload = 128 << 10

// checkWorkload checks what the CRD's schema cannot, by rendering the workload: with the defaults of
// its parameters or, where there are none, with values that their schemas allow.
func checkWorkload(plan *v1alpha1.Plan, charts workload.Charts) error {
	w := plan.Workload
	document, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	if len(document) > mostWorkload {
		return fmt.Errorf("workload: has %d bytes, more than the %d of which each instance keeps a copy", len(document), mostWorkload)
	}
	if r := plan.Resources; r != nil {
		for _, no := range []struct {
			given bool
			field string
		}{
			{r.Peering != nil && r.Peering.Gives == v1alpha1.GivesNode, "peering.gives: Node"},
			{r.Peering.ByHub() && !r.Peering.IsOpaque(), "peering.role: HubAndSpoke"},
			{r.Peering.IsOpaque(), "peering.role: Opaque"},
		} {
			if no.given {
				return fmt.Errorf("resources.%s: cannot be combined with kind: workload", no.field)
			}
		}
		if err := checkDivided(w, r); err != nil {
			return fmt.Errorf("resources.%w", err)
		}
	}
	if w.HasBackup() && plan.Credentials.Role == "edit" {
		return errors.New("credentials.role: edit cannot be combined with a backup, because consumers could read the credentials of the target")
	}
	if err := checkBackups(plan); err != nil {
		return fmt.Errorf("workload.backups%w", err)
	}
	own := properties(resourcesParameters, newPlan(*plan, nil, nil).Resources)
	for _, name := range slices.Sorted(maps.Keys(w.Parameters)) {
		if _, taken := own[name]; taken {
			return fmt.Errorf("workload.parameters: %s is a parameter of resources already", name)
		}
	}
	for _, name := range w.Required {
		if _, ok := w.Parameters[name]; !ok {
			return fmt.Errorf("workload.required: there is no parameter %s", name)
		}
	}
	parameters, err := workload.SampleParameters(w)
	if err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	if _, err := newPlan(*plan, nil, charts).Footprint(parameters); err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	if err := workload.CheckCredentials(w, parameters, plan.Credentials.Role != ""); err != nil {
		return fmt.Errorf("workload: %w", err)
	}
	return nil
}

// checkBackups checks that the volumes of a workload can be backed up where they are, if its plan says when. The
// error begins with the rest of the field's path.
func checkBackups(plan *v1alpha1.Plan) error {
	w, r := plan.Workload, plan.Resources
	switch {
	case w.Backups == nil:
		return nil
	case !w.IsBackedUp():
		return errors.New(": all components have to be containers, and those with volumes need backup and restore")
	case r != nil && (r.Clusters > 1 || r.MaxClusters > 1 || len(r.Components) > 0):
		return errors.New(": cannot be combined with several clusters, or with components on clusters of their own")
	}
	if w.Backups.Schedule == "" {
		return nil
	}
	if _, err := cron.ParseStandard(w.Backups.Schedule); err != nil {
		return fmt.Errorf(".schedule: want a cron expression with five fields, for instance \"0 3 * * *\": %w", err)
	}
	return nil
}

// checkDivided checks a workload whose components are on clusters of their own.
func checkDivided(w *v1alpha1.WorkloadPlan, r *v1alpha1.ResourcesPlan) error {
	if len(r.Components) == 0 {
		return nil
	}
	placed := map[string]bool{}
	for i := range r.Components {
		c := &r.Components[i]
		if len(c.Limits) > 0 {
			return fmt.Errorf("components[%s].limits: cannot be set, because the resources of a workload's components are computed", c.Name)
		}
		placed[c.Name] = true
	}
	serves := map[string]bool{}
	for i := range w.Components {
		c := &w.Components[i]
		if !placed[c.Name] {
			return fmt.Errorf("components: %s is missing; name all components of the workload, or none", c.Name)
		}
		delete(placed, c.Name)
		serves[c.Name] = len(c.Ports) > 0
	}
	for name := range placed {
		return fmt.Errorf("components[%s]: the workload has no such component", name)
	}
	for i, link := range r.Links {
		if !serves[link.Between[0]] && !serves[link.Between[1]] {
			return fmt.Errorf("links[%d]: neither %s nor %s has ports", i, link.Between[0], link.Between[1])
		}
	}
	return nil
}

// resourcesParameters returns the parameters of resources that the plan's workload does not use for
// something else.
func (p *Plan) resourcesParameters() []resourcesParameter {
	if p.Workload == nil {
		return resourcesParameters
	}
	return slices.DeleteFunc(slices.Clone(resourcesParameters), func(one resourcesParameter) bool {
		_, own := p.Workload.Parameters[one.name]
		return own
	})
}

// addWorkloadParameters adds the parameters of a workload to the schema of its instances.
func addWorkloadParameters(w *v1alpha1.WorkloadPlan, schema, offered map[string]any) {
	for name, of := range w.Parameters {
		var described any
		if err := json.Unmarshal(of.Raw, &described); err == nil { // the hub stores nothing but JSON
			offered[name] = described
		}
	}
	if len(w.Required) > 0 {
		var required []any
		for _, name := range w.Required {
			required = append(required, name)
		}
		schema["required"] = required
	}
}

// Footprint describes a workload before its cluster is known.
type Footprint = workload.Footprint

// Pod is a pod of a workload, as far as rules of policies read it.
type Pod = workload.Pod

// footprints caches the last footprints that were computed, by parameters.
type footprints = lru.Cache[string, *Footprint]

func newFootprints() *footprints {
	cache, err := lru.New[string, *Footprint](1024)
	if err != nil {
		panic(err) // the size is not positive
	}
	return cache
}

// Footprint returns what an instance of a workload plan takes on each cluster, and its images. It
// blocks while a chart is read that was not used for long. The error is a *ParameterError: the workload cannot be rendered with the parameters, or exceeds the
// plan's limits. Callers must not change the result.
func (p *Plan) Footprint(parameters json.RawMessage) (*Footprint, error) {
	if p.Workload == nil {
		return nil, fmt.Errorf("plan %s sells no workload", p.Name)
	}
	if known, ok := p.footprints.Get(string(parameters)); ok {
		return known, nil
	}
	f, err := workload.FootprintOf(p.Workload, p.charts, parameters, p.mostReplicas())
	if refused := (*workload.RefusedError)(nil); errors.As(err, &refused) {
		return nil, &ParameterError{Message: refused.Reason}
	}
	if err != nil {
		return nil, err
	}
	if over := workload.Exceeds(f.Takes, p.most()); over != "" {
		return nil, &ParameterError{Message: "the workload " + over}
	}
	if !workload.Hides(p.Workload) { // what is hidden is nowhere longer than it is needed
		p.footprints.Add(string(parameters), f)
	}
	return f, nil
}

// mostReplicas returns the greatest number of replicas of an instance; 0 if the plan divides none.
func (p *Plan) mostReplicas() int32 {
	if p.Resources == nil || p.Resources.Replicas == nil {
		return 0
	}
	return max(p.Resources.Replicas.Count, p.Resources.Replicas.Max)
}

// most returns the limits and storage of the plan.
func (p *Plan) most() corev1.ResourceList {
	most := corev1.ResourceList{}
	if p.Resources == nil {
		return most
	}
	maps.Copy(most, p.Resources.Limits)
	for class, size := range p.Resources.Storage {
		most[v1alpha1.StorageResource(class)] = size
	}
	return most
}

// Running returns the plan with another workload: the one that an instance has, which the plan may
// have replaced since.
func (p *Plan) Running(w *v1alpha1.WorkloadPlan) *Plan {
	own := *p
	own.Workload, own.footprints = w, newFootprints()
	return &own
}
