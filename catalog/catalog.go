package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Catalog is what is sold now. The zero value sells nothing. Its methods are safe
// for concurrent use and never block.
type Catalog struct {
	current atomic.Pointer[Snapshot]
}

// Snapshot returns the catalog of this instant; never nil, never changed.
func (c *Catalog) Snapshot() *Snapshot {
	if s := c.current.Load(); s != nil {
		return s
	}
	return emptySnapshot
}

// Loaded reports whether the catalog has been read from the hub at least once.
func (c *Catalog) Loaded() bool { return c.current.Load() != nil }

// Replace makes a snapshot the current one.
func (c *Catalog) Replace(s *Snapshot) { c.current.Store(s) }

// Offering is a service offering as it is sold.
type Offering struct {
	*v1alpha1.ServiceOfferingSpec
	// Plans of the offering that the asking platform sees, in the order of the spec.
	Plans []*Plan
	// Retired offerings are being deleted: instances live on, but none is provisioned.
	Retired bool
}

// Plan is a plan as it is sold, with its schemas compiled.
type Plan struct {
	v1alpha1.Plan
	// Offering of the plan, with all its plans.
	Offering *Offering

	create, update, bind *schema
}

// IsBindable reports whether instances of the plan can be bound.
func (p *Plan) IsBindable() bool { return override(p.Bindable, p.Offering.Bindable) }

// IsPlanUpdateable reports whether instances can leave the plan for another.
func (p *Plan) IsPlanUpdateable() bool { return override(p.PlanUpdateable, p.Offering.PlanUpdateable) }

// CannotBecome says why instances of the plan cannot change to another one, or nothing: an
// update changes how much an instance has and where, not what it is.
func (p *Plan) CannotBecome(to *Plan) string {
	switch {
	case !p.IsPlanUpdateable():
		return fmt.Sprintf("instances of plan %s cannot change their plan", p.Name)
	case p.Kind != to.Kind:
		return fmt.Sprintf("plan %s is of kind %s and plan %s of kind %s", p.Name, p.Kind, to.Name, to.Kind)
	case p.way() != to.way():
		return fmt.Sprintf("plans %s and %s reach the consumer's cluster in different ways (resources.peering)", p.Name, to.Name)
	}
	return ""
}

// way is what does not change of a peering; zero without one.
type way struct {
	gives         v1alpha1.PeeringGives
	role          v1alpha1.BrokerRole
	mapping, name string
}

func (p *Plan) way() (w way) {
	if p.Resources == nil || p.Resources.Peering == nil {
		return w
	}
	peering := p.Resources.Peering
	w = way{gives: peering.Gives, role: peering.Role}
	if o := peering.Offloading; o != nil {
		w.mapping, w.name = o.Mapping, o.Name
	}
	return w
}

// IsBindingRotatable reports whether bindings can be rotated.
func (p *Plan) IsBindingRotatable() bool {
	return override(p.BindingRotatable, p.Offering.BindingRotatable)
}

// VisibleTo reports whether a platform sees the plan.
func (p *Plan) VisibleTo(platform string) bool {
	return admits(p.Offering.Platforms, platform) && admits(p.Platforms, platform)
}

// Schemas are the schemas of the parameters of provision, update and bind that
// are advertised and enforced. Each names its $schema, refers to nothing outside
// itself and has at most MaxSchemaBytes (OSB 2.17, "Schema Parameters").
func (p *Plan) Schemas() (create, update, bind json.RawMessage) {
	return p.create.document, p.update.document, p.bind.document
}

// ValidateCreate checks the parameters of a provision; none are given as nil. The
// error is a *ParameterError.
func (p *Plan) ValidateCreate(parameters json.RawMessage) error { return p.create.validate(parameters) }

// ValidateUpdate is ValidateCreate for an update.
func (p *Plan) ValidateUpdate(parameters json.RawMessage) error { return p.update.validate(parameters) }

// ValidateBind is ValidateCreate for a bind.
func (p *Plan) ValidateBind(parameters json.RawMessage) error { return p.bind.validate(parameters) }

// Snapshot is the catalog of one instant. It is immutable.
type Snapshot struct {
	revision  string
	offerings []*Offering          // not retired, by name
	byID      map[string]*Offering // retired ones too
	plans     map[string]*Plan     // by id, which is unique across offerings
	named     map[string][]*Offering
	unnamed   []*Offering // what a platform sees that no offering or plan names
	digests   map[string]string
	facts     map[string]*Facts // by plan id
}

var emptySnapshot = newSnapshot(nil, nil)

// newSnapshot indexes offerings; digests are those of the resources, by service id.
func newSnapshot(offerings []*Offering, digests map[string]string) *Snapshot {
	s := &Snapshot{
		revision: revision(digests),
		byID:     make(map[string]*Offering, len(offerings)),
		plans:    map[string]*Plan{},
		named:    map[string][]*Offering{},
		digests:  digests,
	}
	slices.SortFunc(offerings, func(a, b *Offering) int { return strings.Compare(a.Name, b.Name) })
	platforms := map[string]bool{}
	for _, o := range offerings {
		s.byID[o.ID] = o
		for _, p := range o.Plans {
			s.plans[p.ID] = p
			for _, platform := range p.Platforms {
				platforms[platform] = true
			}
		}
		for _, platform := range o.Platforms {
			platforms[platform] = true
		}
		if !o.Retired {
			s.offerings = append(s.offerings, o)
		}
	}
	for platform := range platforms {
		s.named[platform] = visible(s.offerings, platform)
	}
	s.unnamed = visible(s.offerings, "")
	return s
}

// Offerings is what a platform sees, sorted by name: offerings with at least one
// visible plan. Callers must not change it.
func (s *Snapshot) Offerings(platform string) []*Offering {
	if offerings, ok := s.named[platform]; ok {
		return offerings
	}
	return s.unnamed
}

// Plan finds a plan in its service offering, retired ones included. The error is
// an *UnknownServiceError or, also when the plan is another offering's, an
// *UnknownPlanError.
func (s *Snapshot) Plan(serviceID, planID string) (*Plan, error) {
	offering, ok := s.byID[serviceID]
	if !ok {
		return nil, &UnknownServiceError{ServiceID: serviceID}
	}
	plan, ok := s.plans[planID]
	if !ok || plan.Offering != offering {
		return nil, &UnknownPlanError{ServiceID: serviceID, PlanID: planID}
	}
	return plan, nil
}

// Facts are what is proven of the clusters that a plan's instances can be placed
// on; nil where nothing is, or where it has not been read yet. Callers must not
// change it.
func (s *Snapshot) Facts(planID string) *Facts { return s.facts[planID] }

// prove adds the facts to a snapshot that nobody has seen yet.
func (s *Snapshot) prove(e *evidence) error {
	s.facts = map[string]*Facts{}
	for id, p := range s.plans {
		if f := e.facts(p); f != nil {
			s.facts[id] = f
		}
	}
	if len(s.facts) == 0 {
		return nil
	}
	document, err := json.Marshal(s.facts)
	if err != nil {
		return fmt.Errorf("encode the facts: %w", err)
	}
	s.revision = revision(map[string]string{"offerings": s.revision, "facts": string(document)})
	return nil
}

// Revision identifies the content: it changes when anything served changes, and
// is the same on every replica.
func (s *Snapshot) Revision() string { return s.revision }

// UnknownServiceError says that the catalog has no such service offering.
type UnknownServiceError struct{ ServiceID string }

func (e *UnknownServiceError) Error() string {
	return fmt.Sprintf("service offering %q is not in the catalog", e.ServiceID)
}

// UnknownPlanError says that a service offering has no such plan.
type UnknownPlanError struct{ ServiceID, PlanID string }

func (e *UnknownPlanError) Error() string {
	return fmt.Sprintf("service offering %q has no plan %q", e.ServiceID, e.PlanID)
}

// visible copies the offerings that a platform sees, with the plans that it sees.
func visible(offerings []*Offering, platform string) []*Offering {
	var out []*Offering
	for _, o := range offerings {
		var plans []*Plan
		for _, p := range o.Plans {
			if p.VisibleTo(platform) {
				plans = append(plans, p)
			}
		}
		if len(plans) > 0 {
			out = append(out, &Offering{ServiceOfferingSpec: o.ServiceOfferingSpec, Plans: plans})
		}
	}
	return out
}

func admits(platforms []string, platform string) bool {
	return len(platforms) == 0 || slices.Contains(platforms, platform)
}

func override(own *bool, inherited bool) bool {
	if own != nil {
		return *own
	}
	return inherited
}
