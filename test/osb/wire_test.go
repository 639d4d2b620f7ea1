package osb

import "encoding/json"

// object is a JSON object.
type object = map[string]any

// catalog is the body of GET /v2/catalog, as far as the suite reads it by type.
// Specs about the presence of fields look at the JSON itself.
type catalog struct {
	Services []offering `json:"services"`
}

// offering is the Service Offering Object.
type offering struct {
	ID                   string   `json:"id"`
	Name                 string   `json:"name"`
	Description          string   `json:"description"`
	Requires             []string `json:"requires"`
	Bindable             *bool    `json:"bindable"`
	PlanUpdateable       bool     `json:"plan_updateable"`
	InstancesRetrievable bool     `json:"instances_retrievable"`
	BindingsRetrievable  bool     `json:"bindings_retrievable"`
	AllowContextUpdates  bool     `json:"allow_context_updates"`
	Plans                []plan   `json:"plans"`
}

// plan is the Service Plan Object.
type plan struct {
	ID                     string           `json:"id"`
	Name                   string           `json:"name"`
	Description            string           `json:"description"`
	Bindable               *bool            `json:"bindable"`
	PlanUpdateable         *bool            `json:"plan_updateable"`
	BindingRotatable       any              `json:"binding_rotatable"`
	MaximumPollingDuration *json.Number     `json:"maximum_polling_duration"`
	MaintenanceInfo        *maintenanceInfo `json:"maintenance_info"`
}

// maintenanceInfo is the Maintenance Info Object.
type maintenanceInfo struct {
	Version string `json:"version"`
}

func (s *offering) bindable(p *plan) bool {
	if p.Bindable != nil {
		return *p.Bindable
	}
	return s.Bindable != nil && *s.Bindable
}

func (s *offering) updateable(p *plan) bool {
	if p.PlanUpdateable != nil {
		return *p.PlanUpdateable
	}
	return s.PlanUpdateable
}

func (p *plan) rotatable() bool { return p.BindingRotatable == true }

// usable are the plans that the lifecycle specs can work with, those first that
// can be changed too.
func (s *offering) usable() []plan {
	var changeable, fixed []plan
	for _, p := range s.Plans {
		switch {
		case !s.bindable(&p):
		case s.updateable(&p):
			changeable = append(changeable, p)
		default:
			fixed = append(fixed, p)
		}
	}
	return append(changeable, fixed...)
}

// operationState is the body of both last_operation routes.
type operationState struct {
	State            string  `json:"state"`
	Description      *string `json:"description"`
	InstanceUsable   *bool   `json:"instance_usable"`
	UpdateRepeatable *bool   `json:"update_repeatable"`
}

const (
	inProgress = "in progress"
	succeeded  = "succeeded"
	failed     = "failed"
)

// endpoint is the Endpoint Object.
type endpoint struct {
	Host     string   `json:"host"`
	Ports    []string `json:"ports"`
	Protocol string   `json:"protocol"`
}

// bindingMetadata is the Binding Metadata Object.
type bindingMetadata struct {
	ExpiresAt   string `json:"expires_at"`
	RenewBefore string `json:"renew_before"`
}
