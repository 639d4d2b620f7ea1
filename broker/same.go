package broker

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/pivotal-cf/brokerapi/v10/domain"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// isSameInstance reports whether a provision asks for exactly the instance that exists, which was
// given the parameters (OSB 2.17, "Provisioning": 200 or 202 if identical, 409 if not).
//
// Of context, only the members that say where the instance belongs count: platforms change
// names and annotations without an update. An absent maintenance_info equals any.
func isSameInstance(i *v1alpha1.ServiceInstance, parameters json.RawMessage, request *provisionRequest) bool {
	state := i.StateInForce()
	return i.Spec.ServiceID == request.ServiceID &&
		i.Spec.OrganizationGUID == request.OrganizationGUID && i.Spec.SpaceGUID == request.SpaceGUID &&
		state.PlanID == request.PlanID &&
		sameObject(parameters, request.RawParameters) &&
		sameHome(rawOf(state.Context), request.RawContext) &&
		sameMaintenance(state.MaintenanceVersion, request.MaintenanceInfo)
}

func sameMaintenance(current string, asked *domain.MaintenanceInfo) bool {
	return asked == nil || asked.Version == current
}

// isSameState reports whether two states of an instance are equal.
func isSameState(a, b *v1alpha1.InstanceState) bool {
	return isSameButContext(a, b) && sameObject(rawOf(a.Context), rawOf(b.Context))
}

func isSameButContext(a, b *v1alpha1.InstanceState) bool {
	return a.PlanID == b.PlanID && a.MaintenanceVersion == b.MaintenanceVersion &&
		sameObject(rawOf(a.Parameters), rawOf(b.Parameters))
}

// isSameBinding reports whether a bind asks for exactly the binding that exists. parameters are those of the existing
// binding, opened. plan_id is ignored, because it is a hint. Fields that a rotation omits are those of its predecessor.
func isSameBinding(b *v1alpha1.ServiceBinding, parameters json.RawMessage, request *bindRequest) bool {
	predecessor := ""
	if request.PredecessorBindingID != nil {
		predecessor = *request.PredecessorBindingID
	}
	same := func(stored, asked string) bool { return stored == asked || predecessor != "" && asked == "" }
	sameJSON := func(stored, asked json.RawMessage) bool {
		return sameObject(stored, asked) || predecessor != "" && asked == nil
	}
	return b.Spec.PredecessorBindingID == predecessor &&
		same(b.Spec.ServiceID, request.ServiceID) &&
		same(b.Spec.AppGUID, request.AppGUID) &&
		sameJSON(rawOf(b.Spec.BindResource), request.RawBindResource) &&
		sameJSON(parameters, request.RawParameters) &&
		(predecessor != "" && request.RawContext == nil || sameHome(rawOf(b.Spec.Context), request.RawContext))
}

// home lists the members of context that identify where an instance belongs (servicebroker
// profile, "Context Object").
var home = []string{"platform", "organization_guid", "space_guid", "namespace", "clusterid"}

func sameHome(a, b json.RawMessage) bool {
	x, y := members(a), members(b)
	for _, name := range home {
		if !sameJSON(x[name], y[name]) {
			return false
		}
	}
	return true
}

// sameObject compares JSON objects by meaning; an absent object equals an empty one.
func sameObject(a, b json.RawMessage) bool {
	return sameJSON(any(members(a)), any(members(b)))
}

func members(raw json.RawMessage) map[string]any {
	out := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	_ = decoder.Decode(&out) // absent, or decoded strictly when it was received
	return out
}

// sameJSON compares decoded JSON. It compares numbers as the hub stores them: as 64-bit
// integers if they fit, otherwise as floating point.
func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			other, there := b[name]
			if !there || !sameJSON(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameJSON(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(string(a), string(b))
	default:
		return a == b
	}
}

func sameNumber(a, b string) bool {
	x, errX := strconv.ParseInt(a, 10, 64)
	y, errY := strconv.ParseInt(b, 10, 64)
	if errX == nil && errY == nil {
		return x == y
	}
	f, _ := strconv.ParseFloat(a, 64) // within range, as strict decoding checks
	g, _ := strconv.ParseFloat(b, 64)
	return f == g
}
