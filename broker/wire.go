package broker

import (
	"encoding/json"
	"time"

	"github.com/pivotal-cf/brokerapi/v10/domain"
	"github.com/pivotal-cf/brokerapi/v10/domain/apiresponses"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// The response bodies: the types of brokerapi, embedded, with the fields that came
// later. Clients in the field refuse fields that they do not know, so a response
// has those of the version that was asked for.
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
		// Sluice's own, which OSB allows: what is not among the endpoints, and why; and the
		// addresses of Services among them, by name.
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

// since passes a field that came with a version, or nothing.
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

// instanceResponse is the body of provision and update; operation is empty when done.
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

// toldOf is what a platform reads of an operation. What is said of an instance's is for
// operators, but for its summary: it has clusters that are not the consumer's, what is free
// there, and addresses.
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

// bindingMetadata is nothing where there is nothing to say.
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

// timestamp is the form that OSB 2.17, "Binding Metadata Object", prescribes:
// yyyy-mm-ddTHH:MM:ss.sZ.
func timestamp(t *metav1.Time) string {
	return t.UTC().Format("2006-01-02T15:04:05.0") + "Z"
}

// retryAfter is when to poll an operation again that began at start: a tenth of its
// age, at least one second and at most ten.
func retryAfter(start, now time.Time) time.Duration {
	return min(max(now.Sub(start)/10, time.Second), 10*time.Second)
}
