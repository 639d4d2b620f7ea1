package workload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/jsonschema"
	"github.com/sluice-dev/sluice/internal/seal"
)

// sealedField is the only member of the object that stands for a sealed value of a parameter.
const sealedField = "sealed.sluice.dev"

// HiddenParameters returns the names of the parameters that a plan's schemas call writeOnly (JSON
// Schema, "writeOnly"), sorted; plan may be nil.
func HiddenParameters(plan *v1alpha1.WorkloadPlan) []string {
	var names []string
	if plan == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(plan.Parameters)) {
		if schema, err := describe(plan.Parameters[name]); err == nil && jsonschema.NewWriteOnly(schema).Is(schema) {
			names = append(names, name)
		}
	}
	return names
}

// SameParameters reports whether two orders choose the same for all parameters of a plan. Others, which
// are of where it runs, may differ.
func SameParameters(plan *v1alpha1.WorkloadPlan, a, b json.RawMessage) bool {
	one, errA := withDefaults(plan, a)
	other, errB := withDefaults(plan, b)
	if errA != nil || errB != nil {
		return false
	}
	for name := range plan.Parameters {
		if !reflect.DeepEqual(one[name], other[name]) {
			return false
		}
	}
	return true
}

// Hides reports whether a plan hides parameters.
func Hides(plan *v1alpha1.WorkloadPlan) bool { return len(HiddenParameters(plan)) > 0 }

// hiddenTexts returns the texts in the parameters that a plan hides.
func hiddenTexts(plan *v1alpha1.WorkloadPlan, parameters map[string]any) []string {
	var texts []string
	for _, name := range HiddenParameters(plan) {
		texts = leaves(texts, parameters[name])
	}
	return slices.Clip(texts)
}

// Parameters seals and opens the hidden parameters of one instance or binding.
type Parameters struct {
	// Namespace and Name of the resource.
	Namespace, Name string
	// kind of the resource; empty means ServiceInstance.
	kind string
	// Keys that values are sealed with.
	Keys *seal.Keyset
}

// ParametersOf returns the value that seals and opens the parameters of an instance.
func ParametersOf(i *v1alpha1.ServiceInstance, keys *seal.Keyset) Parameters {
	return Parameters{Namespace: i.Namespace, Name: i.Name, Keys: keys}
}

// BindingParametersOf returns the value that seals and opens the parameters of a binding.
func BindingParametersOf(b *v1alpha1.ServiceBinding, keys *seal.Keyset) Parameters {
	return Parameters{Namespace: b.Namespace, Name: b.Name, kind: v1alpha1.KindServiceBinding, Keys: keys}
}

// owner returns the context to which the sealed value of a parameter is bound: it cannot be
// unsealed as the value of another parameter, instance or binding.
func (p Parameters) owner(parameter string) []byte {
	return seal.Owner(cmp.Or(p.kind, v1alpha1.KindServiceInstance)+" parameter "+parameter, p.Namespace, p.Name, "")
}

// Sealed returns parameters, an object, with the values of the hidden ones sealed. A
// value that is sealed in one of those before with the same content is taken from there, so that equal
// parameters stay equal. The error is a *RefusedError for values that look sealed already.
func (p Parameters) Sealed(hidden []string, raw json.RawMessage, before ...json.RawMessage) (json.RawMessage, error) {
	values, err := membersOf(raw)
	if err != nil {
		return nil, err
	}
	for name, value := range values {
		if _, ok := sealedValue(value); ok {
			return nil, refused("%s: the name %s is reserved for Sluice", name, sealedField)
		}
	}
	return p.SealedMore(hidden, raw, before...)
}

// SealedMore is Sealed for stored parameters, some of which may be sealed already. It returns them unchanged if nothing is left
// to seal.
func (p Parameters) SealedMore(hidden []string, stored json.RawMessage, before ...json.RawMessage) (json.RawMessage, error) {
	values, err := membersOf(stored)
	if err != nil {
		return nil, err
	}
	sealedAny := false
	for _, name := range hidden {
		value, given := values[name]
		if _, is := sealedValue(value); is || !given {
			continue
		}
		sealedAny = true
		if values[name], err = p.sealed(name, value, before); err != nil {
			return nil, err
		}
	}
	if !sealedAny {
		return stored, nil
	}
	return json.Marshal(values)
}

// sealed returns the stored form of a value: the one in before if the value is the same, so that it
// does not change.
func (p Parameters) sealed(name string, value json.RawMessage, before []json.RawMessage) (json.RawMessage, error) {
	for _, stored := range before {
		known, err := membersOf(stored)
		if err != nil {
			return nil, err
		}
		if p.holds(name, known[name], value) {
			return known[name], nil
		}
	}
	if p.Keys == nil {
		return nil, errors.New("seal the parameters: there is no keyset")
	}
	sealed, err := p.Keys.Seal(value, p.owner(name))
	if err != nil {
		return nil, fmt.Errorf("seal the parameter %s: %w", name, err)
	}
	return json.Marshal(map[string][]byte{sealedField: sealed})
}

// holds reports whether a stored value is a sealed one with the given content.
func (p Parameters) holds(name string, stored, value json.RawMessage) bool {
	sealed, ok := sealedValue(stored)
	if !ok {
		return false
	}
	opened, err := p.open(name, sealed)
	return err == nil && seal.Redact(opened).Equal(seal.Redact(value))
}

// Opened returns stored parameters with the sealed values as the consumer gave them.
func (p Parameters) Opened(stored json.RawMessage) (json.RawMessage, error) {
	return replaceSealed(stored, func(name string, sealed []byte) (json.RawMessage, error) { return p.open(name, sealed) })
}

func (p Parameters) open(name string, sealed []byte) (json.RawMessage, error) {
	if p.Keys == nil {
		return nil, errors.New("open the parameters: there is no keyset")
	}
	opened, err := p.Keys.Unseal(sealed, p.owner(name))
	if err != nil {
		return nil, fmt.Errorf("open the parameter %s: %w", name, err)
	}
	return opened.Reveal(), nil
}

// Redacted removes the texts of sealed parameters, and their longer numbers, from a message. There may be several sets of them.
func (p Parameters) Redacted(message string, stored ...json.RawMessage) string {
	var e expressions
	for _, one := range stored {
		texts, err := p.texts(one)
		if err != nil {
			return "they cannot be opened"
		}
		e.hide = append(e.hide, texts...)
	}
	return e.redacted(message)
}

// texts returns the texts of the sealed ones of stored parameters.
func (p Parameters) texts(stored json.RawMessage) (texts []string, err error) {
	hidden, err := p.Hidden(stored)
	if err != nil {
		return nil, err
	}
	for _, raw := range hidden {
		var value any
		if utiljson.Unmarshal(raw, &value) == nil { // it was JSON when it was sealed
			texts = leaves(texts, value)
		}
	}
	return texts, nil
}

// Hidden returns the sealed ones of stored parameters, opened. An update that does not name them keeps
// them.
func (p Parameters) Hidden(stored json.RawMessage) (map[string]json.RawMessage, error) {
	values, err := membersOf(stored)
	if err != nil {
		return nil, err
	}
	hidden := map[string]json.RawMessage{}
	for name, value := range values {
		if sealed, ok := sealedValue(value); ok {
			if hidden[name], err = p.open(name, sealed); err != nil {
				return nil, err
			}
		}
	}
	return hidden, nil
}

// Compare reports whether two sets of stored parameters have the same content, and returns the names of the hidden ones of
// the first that the second has, too.
func (p Parameters) Compare(first, second json.RawMessage) (same bool, kept []string, err error) {
	hidden, err := p.Hidden(first)
	if err != nil {
		return false, nil, err
	}
	var values [2]map[string]any
	for i, stored := range []json.RawMessage{first, second} {
		opened, err := p.Opened(stored)
		if err != nil {
			return false, nil, err
		}
		if len(opened) == 0 {
			continue
		}
		if err := utiljson.Unmarshal(opened, &values[i]); err != nil {
			return false, nil, errors.New("parameters: want an object")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(hidden)) {
		if value, ok := values[1][name]; ok && reflect.DeepEqual(value, values[0][name]) {
			kept = append(kept, name)
		}
	}
	return len(values[0])+len(values[1]) == 0 || reflect.DeepEqual(values[0], values[1]), kept, nil
}

// NamesOf returns the names of parameters, sorted.
func NamesOf(parameters json.RawMessage) []string {
	values, _ := membersOf(parameters) // they are an object, see ShownParameters
	return slices.Sorted(maps.Keys(values))
}

// ShownParameters returns stored parameters without those that are sealed or hidden.
func ShownParameters(stored json.RawMessage, hidden ...string) json.RawMessage {
	values, err := membersOf(stored)
	if err != nil {
		return nil // they are no object: the hub's content was changed
	}
	all := len(values)
	maps.DeleteFunc(values, func(name string, value json.RawMessage) bool {
		_, isSealed := sealedValue(value)
		return isSealed || slices.Contains(hidden, name)
	})
	if len(values) == all {
		return stored
	}
	shown, _ := json.Marshal(values) // it was JSON
	return shown
}

// SealedParameters returns the sealed ones of stored parameters, as they are stored.
func SealedParameters(stored json.RawMessage) (all [][]byte) {
	values, _ := membersOf(stored) // they are an object, see ShownParameters
	for _, value := range values {
		if sealed, ok := sealedValue(value); ok {
			all = append(all, sealed)
		}
	}
	return all
}

// sampledParameters returns stored parameters with sealed values replaced by ones that their schemas
// allow.
func sampledParameters(plan *v1alpha1.WorkloadPlan, stored json.RawMessage) (json.RawMessage, error) {
	return replaceSealed(stored, func(name string, _ []byte) (json.RawMessage, error) {
		schema, err := describe(plan.Parameters[name])
		if err != nil {
			schema = nil // the plan does not describe it any more
		}
		return json.Marshal(sampleOf(schema))
	})
}

// replaceSealed replaces sealed values, and drops those for which there is none.
func replaceSealed(stored json.RawMessage, with func(name string, sealed []byte) (json.RawMessage, error)) (json.RawMessage, error) {
	values, err := membersOf(stored)
	if err != nil {
		return nil, err
	}
	replaced := false
	for name, value := range values {
		sealed, ok := sealedValue(value)
		if !ok {
			continue
		}
		replaced = true
		opened, err := with(name, sealed)
		if err != nil {
			return nil, err
		}
		if values[name] = opened; opened == nil {
			delete(values, name)
		}
	}
	if !replaced {
		return stored, nil
	}
	return json.Marshal(values)
}

// sealedValue returns what is sealed in a stored value, if it is a sealed one.
func sealedValue(value json.RawMessage) (sealed []byte, ok bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		return nil, false
	}
	content, ok := object[sealedField]
	if !ok {
		return nil, false
	}
	if json.Unmarshal(content, &sealed) != nil {
		sealed = nil // nothing opens it
	}
	return sealed, true
}

func membersOf(raw json.RawMessage) (map[string]json.RawMessage, error) {
	values := map[string]json.RawMessage{}
	if len(raw) == 0 {
		return values, nil
	}
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, errors.New("parameters: want an object")
	}
	return values, nil
}

// shortestNumber is the length from which numbers are hidden: shorter ones are parts of too many messages.
const shortestNumber = 4

// leaves adds the texts in a JSON value, and its numbers from shortestNumber on, as JSON writes them.
func leaves(texts []string, value any) []string {
	switch value := value.(type) {
	case string:
		return append(texts, value)
	case int64, float64:
		if text, err := json.Marshal(value); err == nil && len(text) >= shortestNumber {
			return append(texts, string(text))
		}
	case map[string]any:
		for _, one := range value {
			texts = leaves(texts, one)
		}
	case []any:
		for _, one := range value {
			texts = leaves(texts, one)
		}
	}
	return texts
}
