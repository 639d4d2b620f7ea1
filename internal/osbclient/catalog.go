package osbclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
)

// Limits of a catalog.
const (
	maxCatalog = 8 << 20 // bytes
	maxPlans   = 10_000
	maxID      = 256 // characters of ids and names
)

// Catalog of a broker. Its ids and names are unique, and each service has a plan.
type Catalog struct {
	Services []Service `json:"services"`
	// Digest of the document.
	Digest string `json:"-"`
}

// Service is an OSB Service Offering Object.
type Service struct {
	ID                   string `json:"id"`
	Name                 string `json:"name"`
	Description          string `json:"description"`
	Bindable             bool   `json:"bindable"`
	InstancesRetrievable bool   `json:"instances_retrievable"`
	BindingsRetrievable  bool   `json:"bindings_retrievable"`
	PlanUpdateable       bool   `json:"plan_updateable"`
	Plans                []Plan `json:"plans"`
}

// Plan is an OSB Service Plan Object.
type Plan struct {
	ID               string `json:"id"`
	Name             string `json:"name"`
	Description      string `json:"description"`
	Bindable         *bool  `json:"bindable"`
	PlanUpdateable   *bool  `json:"plan_updateable"`
	BindingRotatable bool   `json:"binding_rotatable"`
	// MaximumPollingDuration in seconds; 0 means that the broker gives none.
	MaximumPollingDuration int64            `json:"maximum_polling_duration"`
	MaintenanceInfo        *MaintenanceInfo `json:"maintenance_info"`
	Schemas                Schemas          `json:"schemas"`
	// Metadata for marketplaces, not checked.
	Metadata json.RawMessage `json:"metadata"`
}

// Schemas is an OSB Schemas Object, not checked. What is missing is nil.
type Schemas struct {
	Instance struct {
		Create Parameters `json:"create"`
		Update Parameters `json:"update"`
	} `json:"service_instance"`
	Binding struct {
		Create Parameters `json:"create"`
	} `json:"service_binding"`
}

// Parameters is an OSB Input Parameters Schema Object.
type Parameters struct {
	Schema json.RawMessage `json:"parameters"`
}

// IsBindable reports whether instances of one of the service's plans can be bound.
func (s *Service) IsBindable(p *Plan) bool {
	if p.Bindable != nil {
		return *p.Bindable
	}
	return s.Bindable
}

// IsUpdateable reports whether instances of one of the service's plans can change to another plan.
func (s *Service) IsUpdateable(p *Plan) bool {
	if p.PlanUpdateable != nil {
		return *p.PlanUpdateable
	}
	return s.PlanUpdateable
}

// MaintenanceInfo is an OSB Maintenance Info Object.
type MaintenanceInfo struct {
	Version string `json:"version"`
}

// cached is the last catalog and its entity tag.
type cached struct {
	mu      sync.Mutex
	tag     string
	catalog *Catalog
}

// Catalog reads the broker's catalog. If the broker knows that it has not changed, it is not transferred
// again. Callers must not change the result. The error is an *Error.
func (c *Client) Catalog(ctx context.Context) (*Catalog, error) {
	c.catalog.mu.Lock()
	defer c.catalog.mu.Unlock()
	r := request{what: "read the catalog", method: http.MethodGet, path: []string{"catalog"}, limit: maxCatalog}
	wanted := []int{http.StatusOK}
	if c.catalog.tag != "" {
		r.header = http.Header{"If-None-Match": {c.catalog.tag}}
		wanted = append(wanted, http.StatusNotModified)
	}
	got, err := c.send(ctx, r, wanted...)
	if err != nil {
		return nil, err
	}
	if got.status == http.StatusNotModified {
		return c.catalog.catalog, nil
	}
	catalog := &Catalog{}
	err = catalog.parse(got)
	if err != nil {
		return nil, &Error{Request: r.what, Status: got.status, Malformed: true, Err: err}
	}
	c.catalog.tag, c.catalog.catalog = got.header.Get("ETag"), catalog
	return catalog, nil
}

// VersionOf returns the version of a plan, by the ids of its service and its own: "" if the plan has no maintenance_info.
// offered is false if the catalog has no such plan.
func (c *Catalog) VersionOf(serviceID, planID string) (version string, offered bool) {
	switch p := c.Plan(serviceID, planID); {
	case p == nil:
		return "", false
	case p.MaintenanceInfo == nil:
		return "", true
	default:
		return p.MaintenanceInfo.Version, true
	}
}

// Plan returns a plan by the ids of its service and its own; nil if the catalog does not have it.
func (c *Catalog) Plan(serviceID, planID string) *Plan {
	for i := range c.Services {
		for k := range c.Services[i].Plans {
			if p := &c.Services[i].Plans[k]; c.Services[i].ID == serviceID && p.ID == planID {
				return p
			}
		}
	}
	return nil
}

func (c *Catalog) parse(got *answer) error {
	if len(got.body) > maxCatalog {
		return fmt.Errorf("longer than %d bytes", maxCatalog)
	}
	if err := got.decode(c); err != nil {
		return err
	}
	c.Digest = digest.FromBytes(got.body).String()
	return c.check()
}

// check finds what OSB 2.17 ("Catalog Management") forbids.
func (c *Catalog) check() error {
	ids, names, plans := map[string]bool{}, map[string]bool{}, 0
	for i := range c.Services {
		s := &c.Services[i]
		path := fmt.Sprintf("services[%d]", i)
		if err := unique(path, s.ID, s.Name, ids, names); err != nil {
			return err
		}
		s.Description = Printable(s.Description)
		if len(s.Plans) == 0 {
			return fmt.Errorf("%s: has no plans", path)
		}
		own := map[string]bool{}
		for k := range s.Plans {
			p := &s.Plans[k]
			path := fmt.Sprintf("%s.plans[%d]", path, k)
			if err := unique(path, p.ID, p.Name, ids, own); err != nil {
				return err
			}
			if p.MaintenanceInfo != nil && len(p.MaintenanceInfo.Version) > maxID {
				return fmt.Errorf("%s.maintenance_info.version: is longer than %d bytes", path, maxID)
			}
			p.Description = Printable(p.Description)
			p.MaximumPollingDuration = max(p.MaximumPollingDuration, 0)
			if plans++; plans > maxPlans {
				return fmt.Errorf("has more than %d plans", maxPlans)
			}
		}
	}
	return nil
}

// unique checks an id and a name, and remembers them.
func unique(path, id, name string, ids, names map[string]bool) error {
	switch {
	case id == "" || name == "":
		return fmt.Errorf("%s: has no id or no name", path)
	case len(id) > maxID || len(name) > maxID:
		return fmt.Errorf("%s: id or name is longer than %d bytes", path, maxID)
	case Printable(id) != id || Printable(name) != name:
		return fmt.Errorf("%s: id or name is not printable", path)
	case strings.Contains(name, "/"):
		return fmt.Errorf("%s: the name %q has a slash", path, name)
	case ids[id]:
		return fmt.Errorf("%s: the id %q is there twice", path, id)
	case names[name]:
		return fmt.Errorf("%s: the name %q is there twice", path, name)
	}
	ids[id], names[name] = true, true
	return nil
}
