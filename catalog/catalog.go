package catalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/workload"
)

// Catalog holds the current offerings. The zero value has none. Its methods are safe for
// concurrent use and never block.
type Catalog struct {
	current atomic.Pointer[Snapshot]

	mu sync.Mutex
	// changed is closed when the snapshot is replaced; nil while nobody waits for that.
	changed chan struct{}
}

// Snapshot returns the current catalog. It is never nil and never changed.
func (c *Catalog) Snapshot() *Snapshot {
	if s := c.current.Load(); s != nil {
		return s
	}
	return emptySnapshot
}

// Names returns the names of an offering and of one of its plans; "" if they are not in the catalog.
func (c *Catalog) Names(serviceID, planID string) (service, plan string) {
	s := c.Snapshot()
	if offering, ok := s.byID[serviceID]; ok {
		service = offering.Name
	}
	if p, err := s.Plan(serviceID, planID); err == nil {
		plan = p.Name
	}
	return service, plan
}

// Loaded reports whether the catalog has been read from the hub at least once.
func (c *Catalog) Loaded() bool { return c.current.Load() != nil }

// Replace makes a snapshot the current one.
func (c *Catalog) Replace(s *Snapshot) {
	c.current.Store(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Changed returns a channel that is closed when the snapshot is replaced. A snapshot that is read after this call has
// all changes that the channel does not report.
func (c *Catalog) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.changed
}

// Offering is a service offering with compiled plans.
type Offering struct {
	*v1alpha1.ServiceOfferingSpec
	// Plans of the offering, in the order of the spec. From Snapshot.Offerings: only those that the
	// platform sees.
	Plans []*Plan
	// Retired reports that the offering is being deleted, or was accepted by an earlier version only: its instances live on,
	// but new ones are refused.
	Retired bool
}

// Plan is a plan with compiled schemas.
type Plan struct {
	v1alpha1.Plan
	// Offering of the plan, with all its plans.
	Offering *Offering
	// Digest of the plan as the offering has it (v1alpha1.DigestOf).
	Digest string
	// Withdrawn reports that no broker offers a candidate of an upstream plan any more: its instances live on,
	// but new ones are refused.
	Withdrawn bool
	// Unread reports that it is not known yet which parameters of an upstream plan its candidates' brokers call
	// writeOnly: all are stored sealed.
	Unread bool
	// Behind are the Sluices that orders of an upstream plan may come to.
	Behind Behind

	create, update, bind *schema
	// footprints of a workload plan, by the parameters.
	footprints *footprints
	charts     workload.Charts
	// passed are the schemas of an upstream plan by its candidates, by name.
	passed map[string]map[string]any
	// hidden and hiddenOfBindings are the parameters of instances and of bindings that the schemas of the plan, or a
	// candidate's broker, call writeOnly. They stay hidden without the broker's schema. Those of instances are of upstream
	// plans only.
	hidden, hiddenOfBindings hiding
}

// IsBindable reports whether instances of the plan can be bound.
func (p *Plan) IsBindable() bool { return override(p.Bindable, p.Offering.Bindable) }

// IsPlanUpdateable reports whether instances can change from this plan to another.
func (p *Plan) IsPlanUpdateable() bool { return override(p.PlanUpdateable, p.Offering.PlanUpdateable) }

// CannotBecome returns the reason why instances of the plan cannot change to another one,
// or "". An update may change how much an instance has and where, but not what it is.
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

// way holds the parts of a peering that an update cannot change; it is zero without a
// peering.
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
	return p.Offering.Shows(&p.Plan, platform)
}

// Schemas returns the schemas of the parameters of provision, update and bind, as they are
// advertised and enforced. Each names its $schema, has no external references, and has at
// most MaxSchemaBytes (OSB 2.17, "Schema Parameters").
func (p *Plan) Schemas() (create, update, bind json.RawMessage) {
	return p.create.document, p.update.document, p.bind.document
}

// ValidateCreate checks the parameters of a provision; nil means none. The error is a
// *ParameterError.
func (p *Plan) ValidateCreate(parameters json.RawMessage) error {
	return p.validateInstance(p.create, parameters, nil)
}

// ValidateState checks the stored parameters of the state that an instance of the plan is to have. inForce is the state that
// it has; nil if it is provisioned. Parameters that are changed have to match the schema of an update, except hidden ones
// that stay. Those of a provision, and of a change of plan alone, have to match the schema of a provision. Others have been
// accepted before. The error is a *ParameterError if the parameters are at fault.
func (p *Plan) ValidateState(of workload.Parameters, inForce, wanted *v1alpha1.InstanceState) error {
	parameters, err := of.Opened(wanted.Raw())
	if err != nil {
		return err
	}
	if inForce == nil {
		return p.ValidateCreate(parameters)
	}
	isSame, kept, err := of.Compare(inForce.Raw(), wanted.Raw())
	switch {
	case err != nil:
		return err
	case !isSame:
		return p.validateInstance(p.update, parameters, kept)
	case inForce.PlanID != wanted.PlanID:
		return p.ValidateCreate(parameters)
	}
	return nil
}

func (p *Plan) validateInstance(s *schema, parameters json.RawMessage, kept []string) error {
	if err := s.validate(parameters, kept); err != nil {
		return err
	}
	if err := p.checkTemplates(parameters); err != nil {
		return err
	}
	if p.Kind == v1alpha1.PlanKindCluster && p.Cluster != nil {
		return p.checkChoice(parameters)
	}
	if p.Workload != nil {
		_, err := p.Footprint(parameters)
		return err
	}
	_, _, err := p.Exposed(parameters)
	return err
}

// ValidateBind does the same for a bind.
func (p *Plan) ValidateBind(parameters json.RawMessage) error {
	return p.bind.validate(parameters, nil)
}

// Snapshot is the catalog at one moment. It is immutable.
type Snapshot struct {
	revision  string
	offerings []*Offering          // without retired ones, by name
	byID      map[string]*Offering // with retired ones
	plans     map[string]*Plan     // by id, which is unique across offerings
	named     map[string][]*Offering
	unnamed   []*Offering // visible to platforms that no offering or plan names
	digests   map[string]string
	facts     map[string]*Facts  // by plan id
	places    map[string]*Places // by plan id
}

var emptySnapshot = newSnapshot(nil, nil)

// newSnapshot indexes offerings. digests are the digests of the resources, by service id.
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

// Offerings returns the offerings with at least one plan that the platform sees, sorted by
// name. Callers must not change the result.
func (s *Snapshot) Offerings(platform string) []*Offering {
	if offerings, ok := s.named[platform]; ok {
		return offerings
	}
	return s.unnamed
}

// All returns all offerings that are not retired, with all their plans, sorted by name. Callers must not change the
// result.
func (s *Snapshot) All() []*Offering { return s.offerings }

// Plan finds a plan in its service offering; retired offerings count. The error is an
// *UnknownServiceError or, even if another offering has the plan, an *UnknownPlanError.
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

// Facts returns the proven facts about the clusters on which a plan's instances can be
// placed. It returns nil if nothing is proven or the facts have not been read yet. Callers
// must not change the result.
func (s *Snapshot) Facts(planID string) *Facts { return s.facts[planID] }

// prove adds the facts to a snapshot that is not published yet.
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

// Revision identifies the content. It changes when any served content changes, and is the
// same on every replica.
func (s *Snapshot) Revision() string { return s.revision }

// UnknownServiceError reports that the catalog does not have the service offering.
type UnknownServiceError struct{ ServiceID string }

func (e *UnknownServiceError) Error() string {
	return fmt.Sprintf("service offering %q is not in the catalog", e.ServiceID)
}

// UnknownPlanError reports that the service offering does not have the plan.
type UnknownPlanError struct{ ServiceID, PlanID string }

func (e *UnknownPlanError) Error() string {
	return fmt.Sprintf("service offering %q has no plan %q", e.ServiceID, e.PlanID)
}

// visible copies the offerings that a platform sees, with only the plans that it sees.
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

func override(own *bool, inherited bool) bool {
	if own != nil {
		return *own
	}
	return inherited
}
