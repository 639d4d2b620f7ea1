package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-dev/sluice/api/v1alpha1"
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

// compileSchemas compiles the schemas of the plan's kind, narrowed by the operator's. Variables are
// the known schemas of class variables. They are omitted if the result would be longer than OSB
// allows, or invalid in the draft of the operator's schema.
func (p *Plan) compileSchemas(variables map[string]map[string]any) error {
	err := p.compileSchemasWith(variables)
	if err != nil && len(variables) > 0 {
		return p.compileSchemasWith(nil)
	}
	return err
}

func (p *Plan) compileSchemasWith(variables map[string]map[string]any) error {
	own := p.Plan.Schemas
	if own == nil {
		own = &v1alpha1.PlanSchemas{}
	}
	instance, update := p.instanceSchema(variables, own.InstanceCreate), p.instanceSchema(variables, own.InstanceUpdate)
	sayWhereItStays(update)
	for _, s := range []struct {
		of        string
		into      **schema
		generated map[string]any
		operators *runtime.RawExtension
	}{
		{"instanceCreate", &p.create, instance, own.InstanceCreate},
		{"instanceUpdate", &p.update, update, own.InstanceUpdate},
		// If neither gives a schema, bindings take no parameters.
		{"bindingCreate", &p.bind, p.bindingSchema(), own.BindingCreate},
	} {
		compiled, err := newSchema(s.generated, s.operators)
		if err != nil {
			return fmt.Errorf("schema %s of plan %s: %w", s.of, p.Name, err)
		}
		*s.into = compiled
	}
	return nil
}

// instanceSchema returns the schema of the parameters of the plan's instances; own is the
// operator's schema, or nil.
func (p *Plan) instanceSchema(variables map[string]map[string]any, own *runtime.RawExtension) map[string]any {
	offered := map[string]any{}
	switch {
	case p.Kind == v1alpha1.PlanKindCluster && p.Cluster != nil:
		offered = properties(clusterParameters, &clusterSold{p.Cluster, variables, own})
	case p.Resources != nil:
		offered = properties(resourcesParameters, p.Resources)
	}
	schema := map[string]any{"type": "object", "properties": offered, "additionalProperties": false}
	if p.Workload != nil {
		addWorkloadParameters(p.Workload, schema, offered)
	}
	return schema
}

// sayWhereItStays notes in the schema of an update that an update does not move the
// instance.
func sayWhereItStays(schema map[string]any) {
	properties := schema["properties"].(map[string]any)
	for i := range resourcesParameters {
		parameter := &resourcesParameters[i]
		if property, ok := properties[parameter.name].(map[string]any); ok && parameter.whereItIs {
			property["description"] = fmt.Sprint(property["description"]) + " An update does not move the instance: it fails where the clusters that it is on do not comply."
		}
	}
}

// newSchema compiles the schema of a plan's kind together with the operator's; a value must
// match both. Either may be nil; without both, only the empty object is valid.
func newSchema(generated map[string]any, operators *runtime.RawExtension) (*schema, error) {
	var root map[string]any
	switch {
	case operators != nil && len(operators.Raw) > 0:
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(operators.Raw))
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
	if ref := externalRef(root); ref != "" {
		return nil, fmt.Errorf("refers to %q; only references within the schema, starting with #, are allowed", ref)
	}
	document, err := json.Marshal(root)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if len(document) > MaxSchemaBytes {
		return nil, fmt.Errorf("has %d bytes, more than the %d that OSB allows", len(document), MaxSchemaBytes)
	}
	compiled, err := compile(document)
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

// externalRef returns a reference that leaves the document, or "".
func externalRef(node any) string {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			target, isString := value.(string)
			switch key {
			case "$ref", "$dynamicRef", "$recursiveRef":
				if isString && !strings.HasPrefix(target, "#") {
					return target
				}
			}
			if found := externalRef(value); found != "" {
				return found
			}
		}
	case []any:
		for _, value := range node {
			if found := externalRef(value); found != "" {
				return found
			}
		}
	}
	return ""
}

// noLoader refuses to load anything: a catalog must not make Sluice read files or call
// hosts.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is neither a known draft of JSON Schema nor part of the schema", url)
}

func compile(document []byte) (*jsonschema.Schema, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	const name = "parameters:schema"
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(name, parsed); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", err)
	}
	return compiled, nil
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

// validate checks parameters; nil and null count as an empty object.
func (s *schema) validate(parameters json.RawMessage) error {
	value := any(map[string]any{})
	if trimmed := bytes.TrimSpace(parameters); len(trimmed) > 0 && !bytes.Equal(trimmed, []byte("null")) {
		var err error
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(trimmed)); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return &ParameterError{Message: "the JSON ends too early"}
			}
			return &ParameterError{Message: "not valid JSON"}
		}
		if _, ok := value.(map[string]any); !ok {
			return &ParameterError{Message: "want an object"}
		}
	}
	err := s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return &ParameterError{Message: "they cannot be checked against the plan's schema"}
	}
	cause := firstCause(invalid)
	return &ParameterError{Path: pointer(cause), Message: sentence(cause)}
}

// firstCause descends to the first specific failure: below conjunctions and references, but
// not into alternatives.
func firstCause(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) > 0 {
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf:
			return e
		}
		e = e.Causes[0]
	}
	return e
}

// pointer returns the JSON Pointer of the wrong value. For an unknown member that is the
// member, not the object that contains it.
func pointer(e *jsonschema.ValidationError) string {
	location := e.InstanceLocation
	if unknown, ok := e.ErrorKind.(*kind.AdditionalProperties); ok && len(unknown.Properties) > 0 {
		location = append(slices.Clone(location), slices.Min(unknown.Properties))
	}
	var b strings.Builder
	for _, token := range location {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}

// sentence explains the failure. It may contain the wrong value and the expected one, so it
// is for the platform and not for logs.
func sentence(e *jsonschema.ValidationError) string {
	if _, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		return "the plan takes no such parameter"
	}
	// A printer is not safe for concurrent use.
	return e.ErrorKind.LocalizedString(message.NewPrinter(language.English))
}
