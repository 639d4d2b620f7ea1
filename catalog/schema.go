package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/jsonschema"
)

// MaxSchemaBytes is the greatest length of a schema in OSB 2.17 ("Schema Parameters").
const MaxSchemaBytes = 64_000

// draft04 is the default $schema: the only draft that every platform understands.
const draft04 = "http://json-schema.org/draft-04/schema#"

// schema is a compiled schema of parameters and its source document.
type schema struct {
	document json.RawMessage
	compiled *jsonschema.Schema
}

// The schemas of a plan, by their names in v1alpha1.PlanSchemas.
const (
	instanceCreate = "instanceCreate"
	instanceUpdate = "instanceUpdate"
	bindingCreate  = "bindingCreate"
)

// compileSchemas compiles the schemas of the plan's kind, narrowed by the operator's. Variables are
// the known schemas of class variables. They, and what brokers say, are omitted if the result would be longer
// than OSB allows, or invalid in the draft of the operator's schema. Of a retired offering, an operator's schema of too much
// work is omitted, too.
func (p *Plan) compileSchemas(variables map[string]map[string]any) error {
	err := p.compileSchemasWith(variables, false)
	if err != nil && len(variables)+len(p.passed) > 0 {
		p.passed = nil
		err = p.compileSchemasWith(nil, false)
	}
	if err != nil && p.Offering.Retired {
		err = p.compileSchemasWith(nil, true)
	}
	if err == nil {
		p.hide()
	}
	return err
}

func (p *Plan) compileSchemasWith(variables map[string]map[string]any, earlier bool) error {
	own := p.Plan.Schemas
	if own == nil {
		own = &v1alpha1.PlanSchemas{}
	}
	ofUpdate := own.InstanceUpdate
	if ofUpdate == nil {
		ofUpdate = own.InstanceCreate // an update replaces all parameters
	}
	for _, s := range []struct {
		of        string
		into      **schema
		generated map[string]any
		operators *runtime.RawExtension
	}{
		{instanceCreate, &p.create, p.instanceSchema(variables, instanceCreate, own.InstanceCreate), own.InstanceCreate},
		{instanceUpdate, &p.update, p.instanceSchema(variables, instanceUpdate, ofUpdate), ofUpdate},
		// If neither gives a schema, bindings take no parameters.
		{bindingCreate, &p.bind, p.bindingSchema(own.BindingCreate), own.BindingCreate},
	} {
		compiled, err := newSchema(s.generated, s.operators, earlier)
		if err != nil {
			return fmt.Errorf("schema %s of plan %s: %w", s.of, p.Name, err)
		}
		*s.into = compiled
	}
	return nil
}

// instanceSchema returns the schema with a name of the parameters of the plan's instances; own is the
// operator's schema, or nil.
func (p *Plan) instanceSchema(variables map[string]map[string]any, name string, own *runtime.RawExtension) map[string]any {
	offered := map[string]any{}
	switch {
	case p.Kind == v1alpha1.PlanKindCluster && p.Cluster != nil:
		sold := &clusterSold{p.Cluster, variables, own}
		offered = properties(clusterParameters, sold)
		maps.Copy(offered, properties(addOnParameters, sold))
	case p.Upstream != nil:
		return p.upstreamSchema(name, own)
	case p.Resources != nil:
		offered = properties(resourcesParameters, p.Resources)
		if name == instanceUpdate {
			sayWhereItStays(offered)
		}
	}
	schema := map[string]any{"type": "object", "properties": offered, "additionalProperties": false}
	if p.Workload != nil {
		addWorkloadParameters(p.Workload, schema, offered)
	}
	return schema
}

// sayWhereItStays notes in the schemas of resourcesParameters that an update does not move the instance.
func sayWhereItStays(offered map[string]any) {
	for i := range resourcesParameters {
		parameter := &resourcesParameters[i]
		if property, ok := offered[parameter.name].(map[string]any); ok && parameter.whereItIs {
			property["description"] = fmt.Sprint(property["description"]) + " An update does not move the instance: it fails where the clusters that it is on do not comply."
		}
	}
}

// newSchema compiles the schema of a plan's kind together with the operator's; a value must
// match both. Either may be nil; without both, only the empty object is valid. If an earlier version has accepted the
// operator's, and its work has no bound, values must match the other one only; the document still says what is hidden.
func newSchema(generated map[string]any, operators *runtime.RawExtension, earlier bool) (*schema, error) {
	var root map[string]any
	switch {
	case operators != nil && len(operators.Raw) > 0:
		document, err := jsonschema.Decode(operators.Raw)
		if err != nil {
			return nil, fmt.Errorf("not JSON: %w", err)
		}
		own, ok := document.(map[string]any)
		if !ok {
			return nil, errors.New("want an object")
		}
		root = own
		if generated != nil {
			conjoin(root, generated)
		}
	case generated != nil:
		root = maps.Clone(generated)
	default:
		root = map[string]any{"type": "object", "additionalProperties": false}
	}
	if _, ok := root["$schema"]; !ok {
		root["$schema"] = draft04
	}
	document, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if len(document) > MaxSchemaBytes {
		return nil, fmt.Errorf("has %d bytes, more than the %d that OSB allows", len(document), MaxSchemaBytes)
	}
	compiled, err := jsonschema.Compile(document)
	if err != nil && earlier {
		if _, err := jsonschema.CompileTrusted(document); err != nil {
			return nil, err
		}
		rest, err := newSchema(generated, &runtime.RawExtension{Raw: []byte(`{"type": "object"}`)}, false)
		if err != nil {
			return nil, err
		}
		return &schema{document: document, compiled: rest.compiled}, nil
	}
	if err != nil {
		return nil, err
	}
	return &schema{document: document, compiled: compiled}, nil
}

// conjoin adds another schema to the allOf of root. It also moves root's $ref there,
// because up to draft-07 a $ref disables its siblings.
func conjoin(root, other map[string]any) {
	all, _ := root["allOf"].([]any)
	if ref, ok := root["$ref"]; ok {
		delete(root, "$ref")
		all = append(all, map[string]any{"$ref": ref})
	}
	root["allOf"] = append(slices.Clip(all), other)
	if _, ok := root["type"]; !ok {
		root["type"] = "object"
	}
}

// ParameterError reports which parameter a plan does not accept, and why.
type ParameterError struct {
	// Path is a JSON Pointer into the parameters; empty means the parameters as a whole.
	Path string
	// Message is a sentence without its full stop.
	Message string
}

func (e *ParameterError) Error() string {
	return fmt.Sprintf("parameters%s: %s", e.Path, e.Message)
}

// validate checks parameters; nil and null count as an empty object. Those that are kept may be ones that the schema does
// not take as they are.
func (s *schema) validate(parameters json.RawMessage, kept []string) error {
	object := map[string]any{}
	if trimmed := bytes.TrimSpace(parameters); len(trimmed) > 0 && !bytes.Equal(trimmed, []byte("null")) {
		value, err := jsonschema.Decode(trimmed)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return &ParameterError{Message: "the JSON ends too early"}
			}
			return &ParameterError{Message: "not valid JSON"}
		}
		var ok bool
		if object, ok = value.(map[string]any); !ok {
			return &ParameterError{Message: "want an object"}
		}
	}
	violation := s.compiled.ValidateBeside(object, kept)
	switch {
	case violation == nil:
		return nil
	case violation.Unknown:
		return &ParameterError{Path: violation.Path, Message: "the plan takes no such parameter"}
	default:
		return &ParameterError{Path: violation.Path, Message: violation.Message}
	}
}
