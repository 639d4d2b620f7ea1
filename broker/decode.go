package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/pivotal-cf/brokerapi/v10/domain"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/internal/strictjson"
)

// maxDrainBytes is how much of an oversized body is still read, so that the client receives
// the answer instead of a broken connection.
const maxDrainBytes = 16 << 20

// maxStoredBytes is the greatest length of the stored part of a request. The hub stores it
// up to three times in an object of at most 1.5 MB, and keeps earlier versions for a while.
const maxStoredBytes = 64 << 10

// Request bodies: the types of brokerapi, with later fields, and with pointers where absent
// differs from empty.
type (
	provisionRequest struct {
		domain.ProvisionDetails
	}
	updateRequest struct {
		domain.UpdateDetails
		PlanID *string `json:"plan_id"`
		// PreviousValues are accepted and ignored: the broker knows the instance's previous state.
		PreviousValues json.RawMessage `json:"previous_values"`
	}
	bindRequest struct {
		domain.BindDetails
		// RawBindResource keeps fields that platforms add.
		RawBindResource json.RawMessage `json:"bind_resource"`
		// PredecessorBindingID makes the request a rotation (2.17).
		PredecessorBindingID *string `json:"predecessor_binding_id"`
	}
)

// decodeBody reads a request body: exactly one JSON object, without numbers that the hub
// cannot store. It ignores Content-Type, because curl -d sends a form's.
func (s *server) decodeBody(c *call, into any) error {
	err := strictjson.Decode(c.Body, strictjson.Limits{Object: true, Bytes: s.MaxBodyBytes, Float64: true}, into)
	if malformed := (*strictjson.Error)(nil); errors.As(err, &malformed) {
		if malformed.Kind == strictjson.TooLarge {
			_, _ = io.CopyN(io.Discard, c.Body, maxDrainBytes)
		}
		return err
	}
	if err != nil {
		return &Error{Status: http.StatusBadRequest, Code: codeBadRequest, Description: "The body could not be read.", Err: err}
	}
	return nil
}

// decodeProvision reads and checks the body of a provision.
func (s *server) decodeProvision(c *call) (*provisionRequest, error) {
	request := &provisionRequest{}
	if err := s.decodeBody(c, request); err != nil {
		return nil, err
	}
	err := errors.Join(
		required("service_id", request.ServiceID), required("plan_id", request.PlanID),
		required("organization_guid", request.OrganizationGUID), required("space_guid", request.SpaceGUID),
		wantObject("parameters", &request.RawParameters), c.checkContext(&request.RawContext),
		storable("context and parameters", request.RawContext, request.RawParameters),
	)
	request.MaintenanceInfo = present(request.MaintenanceInfo)
	return request, err
}

// decodeUpdate reads and checks the body of an update.
func (s *server) decodeUpdate(c *call) (*updateRequest, error) {
	request := &updateRequest{}
	if err := s.decodeBody(c, request); err != nil {
		return nil, err
	}
	err := errors.Join(
		required("service_id", request.ServiceID), wantObject("parameters", &request.RawParameters),
		wantObject("previous_values", &request.PreviousValues), c.checkContext(&request.RawContext),
		storable("context and parameters", request.RawContext, request.RawParameters),
	)
	if request.PlanID != nil {
		err = errors.Join(err, required("plan_id", *request.PlanID))
	}
	request.MaintenanceInfo = present(request.MaintenanceInfo)
	return request, err
}

// decodeBind reads and checks the body of a bind. A rotation may omit service_id and
// plan_id: the specification's table lists only the predecessor, its OpenAPI document all
// three.
func (s *server) decodeBind(c *call) (*bindRequest, error) {
	request := &bindRequest{}
	if err := s.decodeBody(c, request); err != nil {
		return nil, err
	}
	var err error
	if request.PredecessorBindingID == nil {
		err = errors.Join(required("service_id", request.ServiceID), required("plan_id", request.PlanID))
	} else {
		err = required("predecessor_binding_id", *request.PredecessorBindingID)
	}
	err = errors.Join(err, wantObject("parameters", &request.RawParameters),
		wantObject("bind_resource", &request.RawBindResource), c.checkContext(&request.RawContext),
		storable("context, parameters and bind_resource", request.RawContext, request.RawParameters, request.RawBindResource))
	if err != nil {
		return nil, err
	}
	if request.RawBindResource != nil {
		if err := json.Unmarshal(request.RawBindResource, &request.BindResource); err != nil {
			return nil, badRequest("bind_resource: a field has the wrong type.")
		}
		if request.AppGUID == "" {
			request.AppGUID = request.BindResource.AppGuid
		}
	}
	return request, nil
}

// checkContext checks that context is an object, its platform a string (OSB 2.17, "Context Object"), and the same as in the
// originating identity (there, "Originating Identity").
func (c *call) checkContext(context *json.RawMessage) error {
	if err := wantObject("context", context); err != nil || *context == nil {
		return err
	}
	var named struct {
		Platform any `json:"platform"`
	}
	_ = json.Unmarshal(*context, &named) // it has been decoded strictly before
	platform, isText := named.Platform.(string)
	switch {
	case named.Platform == nil:
		return nil
	case !isText:
		return badRequest("context.platform: want a string.")
	case c.identity != nil && platform != c.identity.Platform:
		return badRequest("context.platform: is not the platform that %s names.", headerOriginatingIdentity)
	}
	return nil
}

func required(field, value string) error {
	if value == "" {
		return badRequest("%s: missing or empty.", field)
	}
	return nil
}

// storable checks that the stored part of a request is not too long.
func storable(fields string, stored ...json.RawMessage) error {
	length := 0
	for _, raw := range stored {
		length += len(raw)
	}
	if length > maxStoredBytes {
		return tooLarge(fmt.Sprintf("%s take %d bytes together, and %d at most are stored", fields, length, maxStoredBytes), nil)
	}
	return nil
}

// wantObject checks that a field is an object, and turns null into absent.
func wantObject(field string, raw *json.RawMessage) error {
	trimmed := bytes.TrimSpace(*raw)
	switch {
	case len(trimmed) == 0, bytes.Equal(trimmed, []byte("null")):
		*raw = nil
	case trimmed[0] != '{':
		return badRequest("%s: want an object.", field)
	}
	return nil
}

// withoutNulls returns an object without its null members, so that a client that never
// sends an empty object can ask for one.
func withoutNulls(raw json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	_ = json.Unmarshal(raw, &object) // it has been decoded strictly before
	before := len(object)
	maps.DeleteFunc(object, func(_ string, value json.RawMessage) bool { return bytes.Equal(value, []byte("null")) })
	if len(object) == before {
		return raw
	}
	kept, _ := json.Marshal(object) // of what was decoded just now
	return kept
}

// present turns an empty maintenance_info into none: some platforms always send it.
func present(info *domain.MaintenanceInfo) *domain.MaintenanceInfo {
	if info == nil || info.Version == "" {
		return nil
	}
	return info
}

// acceptsIncomplete reads the query parameter accepts_incomplete: true, false or absent.
func (c *call) acceptsIncomplete() (bool, error) {
	value, there, err := single(c.query, "accepts_incomplete")
	switch {
	case err != nil:
		return false, err
	case !there, value == "false":
		return false, nil
	case value == "true":
		return true, nil
	default:
		return false, badRequest("accepts_incomplete: want true or false.")
	}
}

// ids reads the query parameters service_id and plan_id, which are required for deletions.
func (c *call) ids() (serviceID, planID string, err error) {
	var errs [2]error
	serviceID, _, errs[0] = single(c.query, "service_id")
	planID, _, errs[1] = single(c.query, "plan_id")
	return serviceID, planID, errors.Join(errs[0], errs[1], required("service_id", serviceID), required("plan_id", planID))
}

func single(query url.Values, name string) (value string, there bool, err error) {
	switch values := query[name]; len(values) {
	case 0:
		return "", false, nil
	case 1:
		return values[0], true, nil
	default:
		return "", true, badRequest("%s: occurs %d times.", name, len(values))
	}
}

// extension turns raw JSON into a field of a resource; empty becomes nil.
func extension(raw json.RawMessage) *runtime.RawExtension {
	if raw == nil {
		return nil
	}
	return &runtime.RawExtension{Raw: raw}
}

// rawOf is the inverse of extension.
func rawOf(e *runtime.RawExtension) json.RawMessage {
	if e == nil {
		return nil
	}
	return e.Raw
}
