package osb

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/jsonschema"
	"github.com/sluice-dev/sluice/internal/osbclient"
	"github.com/sluice-dev/sluice/internal/workload"
	"github.com/sluice-dev/sluice/placement/delivery"
)

// wanted describes an instance as it is to be at a broker.
type wanted struct {
	v1alpha1.OfferedPlan
	parameters json.RawMessage // nil: none
	stored     json.RawMessage // the consumer's; nil if the candidate has parameters of its own
	isGiven    bool            // the consumer gave parameters
	context    *runtime.RawExtension
	// digest of all that a request would send of it.
	digest string
}

func (t *tenant) wanted(of delivery.Delivery) (*wanted, error) {
	return t.wantedOf(of.Placement.Upstream, of.State)
}

// delivered returns what the instance is at the broker; nil if it was never delivered there.
func (t *tenant) delivered() (*wanted, error) {
	d := t.instance.Status.Delivered
	if d == nil {
		return nil, nil
	}
	for i := range d.Decision.Placements {
		if p := &d.Decision.Placements[i]; p.Cluster == t.broker && p.Upstream != nil {
			return t.wantedOf(p.Upstream, &d.State)
		}
	}
	return nil, nil
}

func (t *tenant) wantedOf(is *v1alpha1.PlacementUpstream, state *v1alpha1.InstanceState) (*wanted, error) {
	if is == nil || is.PlanID == "" || state == nil {
		return nil, fmt.Errorf("instance %s: the decision names no plan of the broker", t.instance.Name)
	}
	parameters, err := t.parametersOf(is, state)
	if err != nil {
		return nil, err
	}
	w := &wanted{OfferedPlan: is.OfferedPlan, parameters: parameters, context: state.Context}
	if is.Parameters == nil {
		w.stored = state.Raw()
	}
	given := strings.TrimSpace(string(state.Raw()))
	w.isGiven = given != "" && given != "{}" && given != "null"
	sum := sha256.Sum256([]byte(strings.Join([]string{w.ServiceID, w.PlanID, w.MaintenanceVersion, string(parameters)}, "\x00")))
	w.digest = hex.EncodeToString(sum[:8])
	return w, nil
}

// parametersOf returns the parameters that the broker gets: those of the candidate, expanded, or else the
// consumer's own.
func (t *tenant) parametersOf(is *v1alpha1.PlacementUpstream, state *v1alpha1.InstanceState) (json.RawMessage, error) {
	given := map[string]any{}
	opened, err := workload.ParametersOf(t.instance, t.Keys).Opened(state.Raw())
	if err != nil {
		return nil, err
	}
	if raw := bytes.TrimSpace(opened); len(raw) > 0 && string(raw) != "null" {
		if err := utiljson.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("parameters: want an object: %w", err)
		}
	}
	var value any = given
	if is.Parameters != nil {
		var template any
		if err := utiljson.Unmarshal(is.Parameters.Raw, &template); err != nil {
			return nil, fmt.Errorf("parameters of the candidate: %w", err)
		}
		if value, err = workload.Expand(variablesOf(t.instance, given, state), template, "parameters"); err != nil {
			return nil, err
		}
	}
	if object, ok := value.(map[string]any); ok && len(object) == 0 {
		return nil, nil
	}
	return json.Marshal(value) // with sorted keys
}

// redacted returns an error without the texts of hidden parameters, which a broker may repeat.
func (t *tenant) redacted(err error) error {
	hide := workload.Redaction(t.instance, t.Keys)
	refused, pending := (*delivery.RefusedError)(nil), (*delivery.PendingError)(nil)
	switch {
	case errors.As(err, &refused):
		refused.Reason, refused.Consumer = hide(refused.Reason), hide(refused.Consumer)
	case errors.As(err, &pending):
		pending.Detail = hide(pending.Detail)
	default:
		return workload.RedactedError(err, hide)
	}
	return err
}

// passable returns what the broker said of the dashboard, without a URL that repeats hidden parameters.
func (t *tenant) passable() *v1alpha1.UpstreamDashboard {
	if d := t.dashboard; d != nil && d.URL != "" && workload.Redaction(t.instance, t.Keys)(d.URL) != d.URL {
		return &v1alpha1.UpstreamDashboard{Ignored: "it has a parameter that the plan hides"}
	}
	return t.dashboard
}

func variablesOf(instance *v1alpha1.ServiceInstance, parameters map[string]any, state *v1alpha1.InstanceState) map[string]any {
	return map[string]any{"parameters": parameters, "instance": map[string]any{
		"id": instance.Spec.InstanceID, "name": instance.Name, "platform": instance.Spec.Platform,
		"organization": instance.Spec.OrganizationGUID, "space": instance.Spec.SpaceGUID, "plan": state.PlanID,
	}}
}

func (t *tenant) order(want *wanted) osbclient.Order {
	place, user := t.identify(want.context)
	return osbclient.Order{
		ServiceID: want.ServiceID, PlanID: want.PlanID, Context: place, OrganizationGUID: t.instance.Spec.OrganizationGUID,
		SpaceGUID: t.instance.Spec.SpaceGUID, Parameters: want.parameters, MaintenanceInfo: maintenance(want.MaintenanceVersion), Identity: user,
		Via: append(slices.Clone(t.instance.Spec.Via), t.Hub),
	}
}

// change returns the update from what the instance is to what it is to be. It has only what differs, and the
// parameters, which an update replaces as a whole. If nothing differs, an update that failed is undone: it has
// everything.
func (t *tenant) change(want, has *wanted) osbclient.Change {
	all := want.digest == has.digest
	place, user := t.identify(want.context)
	change := osbclient.Change{
		ServiceID: want.ServiceID, Context: place, Identity: user, PreviousValues: osbclient.PreviousValues{
			PlanID: has.PlanID, MaintenanceInfo: maintenance(has.MaintenanceVersion),
		},
	}
	if all || want.PlanID != has.PlanID {
		change.PlanID = want.PlanID
	}
	if all || !bytes.Equal(want.parameters, has.parameters) {
		if change.Parameters = want.parameters; change.Parameters == nil {
			change.Parameters = json.RawMessage("{}")
		}
	}
	if all || want.MaintenanceVersion != has.MaintenanceVersion || change.PlanID != "" {
		change.MaintenanceInfo = maintenance(want.MaintenanceVersion)
	}
	return change
}

// taken returns the parameters of an update without hidden ones that stay, as far as the broker's schema of an update does
// not take them: consumers can neither read nor repeat them.
func (t *tenant) taken(ctx context.Context, parameters json.RawMessage, want, has *wanted) (json.RawMessage, error) {
	_, kept, err := workload.ParametersOf(t.instance, t.Keys).Compare(has.stored, want.stored)
	if err != nil || len(kept) == 0 || parameters == nil {
		return parameters, err
	}
	catalog, err := t.client.Catalog(ctx)
	if err != nil {
		return nil, err
	}
	plan := catalog.Plan(want.ServiceID, want.PlanID)
	if plan == nil {
		return parameters, nil
	}
	schema, err := jsonschema.Compile(plan.Schemas.Instance.Update.Schema)
	if err != nil {
		return parameters, nil // there is none, or it counts as none
	}
	decoded, err := jsonschema.Decode(parameters)
	if err != nil {
		return nil, err
	}
	object, is := decoded.(map[string]any)
	if !is {
		return parameters, nil
	}
	if schema.ValidateBeside(object, kept); len(object) == 0 {
		return json.RawMessage("{}"), nil
	}
	return json.Marshal(object)
}

func (t *tenant) identify(of *runtime.RawExtension) (json.RawMessage, *v1alpha1.OriginatingIdentity) {
	return t.client.Identify(t.instance, of, t.instance.Spec.OriginatingIdentity)
}

func maintenance(version string) *osbclient.MaintenanceInfo {
	if version == "" {
		return nil
	}
	return &osbclient.MaintenanceInfo{Version: version}
}

// note returns what the driver remembers of an operation that the broker has accepted: what was sent, and the
// operation. It is in memory only; a request that is repeated gets the same answer.
func note(sent, operation string) string { return sent + " " + operation }

func readNote(applied string) (sent, operation string) {
	sent, operation, _ = strings.Cut(applied, " ")
	return sent, operation
}
