package broker

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/workload"
)

// stored returns the parameters of an instance as the hub stores them: those that the plan hides are sealed. Of a plan of
// other brokers, those that were sealed before are, too: the broker's schema, which hid them, may have gone since. Before
// its schemas are known, all are.
func (s *server) stored(i *v1alpha1.ServiceInstance, plan *catalog.Plan, parameters json.RawMessage) (*runtime.RawExtension, error) {
	of, before := workload.ParametersOf(i, s.Keys), []json.RawMessage{rawOf(i.StateInForce().Parameters), rawOf(i.Spec.Desired.Parameters)}
	hidden := slices.Clone(plan.HiddenParameters(parameters))
	for _, stored := range before {
		if plan.Upstream == nil {
			break // placement computes with what a workload's plan does not hide
		}
		values, err := of.Hidden(stored)
		if err != nil {
			return nil, err
		}
		hidden = slices.AppendSeq(hidden, maps.Keys(values))
	}
	return sealed(of, plan, hidden, parameters, before...)
}

// sealed returns parameters with the hidden ones sealed, or all before the schemas of a plan of other brokers are known.
func sealed(of workload.Parameters, plan *catalog.Plan, hidden []string, parameters json.RawMessage, before ...json.RawMessage) (*runtime.RawExtension, error) {
	if plan.Unread {
		hidden = append(hidden, workload.NamesOf(parameters)...)
	}
	slices.Sort(hidden)
	sealed, err := of.Sealed(slices.Compact(hidden), parameters, before...)
	if refused := (*workload.RefusedError)(nil); errors.As(err, &refused) {
		return nil, &catalog.ParameterError{Message: refused.Reason}
	}
	return extension(sealed), err
}

// shownOf returns the parameters of a binding that platforms may fetch: those that are not sealed, and that the plan does not
// hide by now. The binding itself cannot be changed.
func (s *server) shownOf(b *v1alpha1.ServiceBinding) json.RawMessage {
	var hidden []string
	if plan, err := s.Catalog.Snapshot().Plan(b.Spec.ServiceID, b.Spec.PlanID); err == nil { // else the plan is gone
		hidden = plan.HiddenBindingParameters(b.Spec.Raw())
	}
	return workload.ShownParameters(b.Spec.Raw(), hidden...)
}

// given returns stored parameters as the consumer gave them.
func (s *server) given(i *v1alpha1.ServiceInstance, state *v1alpha1.InstanceState) (json.RawMessage, error) {
	return workload.ParametersOf(i, s.Keys).Opened(rawOf(state.Parameters))
}

// updated returns the parameters that an update asks for. They replace those of the instance as a
// whole, except that hidden ones stay unless they are given or null: nobody can read them to repeat
// them.
func (s *server) updated(i *v1alpha1.ServiceInstance, asked json.RawMessage) (json.RawMessage, error) {
	hidden, err := workload.ParametersOf(i, s.Keys).Hidden(rawOf(i.StateInForce().Parameters))
	if err != nil || len(hidden) == 0 {
		return withoutNulls(asked), err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(asked, &values); err != nil {
		return nil, err // it has been decoded strictly before
	}
	for name, value := range hidden {
		if _, given := values[name]; !given {
			values[name] = value
		}
	}
	whole, err := json.Marshal(values)
	return withoutNulls(whole), err
}
