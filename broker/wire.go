package broker

import (
	"encoding/json"
	"time"

	"github.com/pivotal-cf/brokerapi/v10/domain"
	"github.com/pivotal-cf/brokerapi/v10/domain/apiresponses"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Response bodies: the types of brokerapi, embedded, with later fields. Clients in the
// field refuse unknown fields, so a response has only the fields of the version that was
// asked for.
type (
	catalogBody struct {
		Services []serviceBody `json:"services"`
	}
	serviceBody struct {
		domain.Service
		Metadata json.RawMessage `json:"metadata,omitempty"`
		Plans    []planBody      `json:"plans"`
	}
	planBody struct {
		domain.ServicePlan
		BindingRotatable *bool        `json:"binding_rotatable,omitempty"` // 2.17
		Metadata         any          `json:"metadata,omitempty"`
		Schemas          *schemasBody `json:"schemas,omitempty"`
	}
	schemasBody struct {
		Instance instanceSchemasBody `json:"service_instance"`
		Binding  *bindingSchemasBody `json:"service_binding,omitempty"`
	}
	instanceSchemasBody struct {
		Create schemaBody `json:"create"`
		Update schemaBody `json:"update"`
	}
	bindingSchemasBody struct {
		Create schemaBody `json:"create"`
	}
	schemaBody struct {
		Parameters json.RawMessage `json:"parameters"`
	}

	instanceBody struct {
		apiresponses.ProvisioningResponse
		Metadata *domain.InstanceMetadata `json:"metadata,omitempty"` // 2.16, attributes 2.17
	}
	fetchedInstanceBody struct {
		apiresponses.GetInstanceResponse
		Parameters      json.RawMessage          `json:"parameters,omitempty"`
		MaintenanceInfo *maintenanceBody         `json:"maintenance_info,omitempty"` // 2.17
		Metadata        *domain.InstanceMetadata `json:"metadata,omitempty"`         // 2.17
	}
	maintenanceBody struct {
		Version     string `json:"version"`
		Description string `json:"description,omitempty"`
	}
	operationBody struct {
		OperationData string `json:"operation"`
	}
	lastOperationBody struct {
		apiresponses.LastOperationResponse
		InstanceUsable   *bool `json:"instance_usable,omitempty"`   // 2.16
		UpdateRepeatable *bool `json:"update_repeatable,omitempty"` // 2.16
	}
	bindingBody struct {
		apiresponses.BindingResponse
		Credentials json.RawMessage      `json:"credentials,omitempty"`
		Endpoints   []v1alpha1.Endpoint  `json:"endpoints,omitempty"` // 2.15
		Metadata    *bindingMetadataBody `json:"metadata,omitempty"`  // 2.16
	}
	bindingMetadataBody struct {
		ExpiresAt   string `json:"expires_at,omitempty"`
		RenewBefore string `json:"renew_before,omitempty"` // 2.17
		// Fields of Sluice, which OSB allows: what is missing from the endpoints and why, and the
		// addresses of their Services by name.
		EndpointsAbsent string              `json:"endpoints_absent,omitempty"`
		Services        map[string][]string `json:"services,omitempty"`
	}
	fetchedBindingBody struct {
		bindingBody
		Parameters json.RawMessage `json:"parameters,omitempty"`
	}
	errorBody struct {
		Error            string `json:"error,omitempty"`
		Description      string `json:"description,omitempty"`
		InstanceUsable   *bool  `json:"instance_usable,omitempty"`   // 2.16
		UpdateRepeatable *bool  `json:"update_repeatable,omitempty"` // 2.16
	}
	emptyBody = apiresponses.EmptyResponse
)

// since returns a field if the asked version has it; nil otherwise.
func since[T any](first, asked version, field *T) *T {
	if asked < first {
		return nil
	}
	return field
}

func errorResponse(e *Error, v version) errorBody {
	return errorBody{
		Error: e.Code, Description: e.Description,
		InstanceUsable: since(v16, v, e.InstanceUsable), UpdateRepeatable: since(v16, v, e.UpdateRepeatable),
	}
}

// instanceResponse is the body of provision and update; operation is empty if it is
// complete.
func instanceResponse(i *v1alpha1.ServiceInstance, dashboardURL, operation string, v version) instanceBody {
	body := instanceBody{Metadata: since(v16, v, &domain.InstanceMetadata{Labels: instanceLabels(i)})}
	body.DashboardURL, body.OperationData = dashboardURL, operation
	return body
}

func lastOperationResponse(o v1alpha1.Operation, v version) lastOperationBody {
	body := lastOperationBody{
		InstanceUsable: since(v16, v, o.InstanceUsable), UpdateRepeatable: since(v16, v, o.UpdateRepeatable),
	}
	body.State, body.Description = domain.LastOperationState(o.State), toldOf(o)
	if o.State != v1alpha1.StateFailed {
		body.InstanceUsable, body.UpdateRepeatable = nil, nil
	}
	return body
}

// toldOf returns the description of an operation for platforms. Of an instance's operation
// they get only the summary. Its description is for operators: it names other clusters,
// their free capacity, and addresses.
func toldOf(o v1alpha1.Operation) string {
	switch {
	case o.Type == v1alpha1.OperationBind || o.Type == v1alpha1.OperationUnbind:
		return o.Description
	case o.Summary != "" || o.State == v1alpha1.StateSucceeded:
		return o.Summary
	case o.State == v1alpha1.StateFailed:
		return "The broker's operator can say why."
	default:
		return "in hand"
	}
}

func bindingResponse(b *v1alpha1.ServiceBinding, credentials json.RawMessage, v version) bindingBody {
	body := bindingBody{Credentials: credentials}
	if v >= v15 {
		body.Endpoints = b.Status.Endpoints
	}
	if v >= v16 {
		body.Metadata = bindingMetadata(b, v)
	}
	return body
}

// bindingMetadata returns nil if the binding has no metadata.
func bindingMetadata(b *v1alpha1.ServiceBinding, v version) *bindingMetadataBody {
	status := &b.Status
	if status.ExpiresAt == nil && status.EndpointsAbsent == "" && len(status.Services) == 0 {
		return nil
	}
	body := &bindingMetadataBody{EndpointsAbsent: status.EndpointsAbsent, Services: status.Services}
	if status.ExpiresAt != nil {
		body.ExpiresAt = timestamp(status.ExpiresAt)
		if v >= v17 && status.RenewBefore != nil {
			body.RenewBefore = timestamp(status.RenewBefore)
		}
	}
	return body
}

// timestamp formats a time as OSB 2.17, "Binding Metadata Object", prescribes:
// yyyy-mm-ddTHH:MM:ss.sZ.
func timestamp(t *metav1.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.0") + "Z"
}

// retryAfter is the pause before the next poll of an operation that began at start: a tenth
// of its age, at least one second and at most ten.
func retryAfter(start, now time.Time) time.Duration {
	return min(max(now.Sub(start)/10, time.Second), 10*time.Second)
}
