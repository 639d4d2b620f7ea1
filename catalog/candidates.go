package catalog

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/sluice-dev/sluice/internal/jsonschema"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/internal/workload"
)

// An upstream plan without schemas of its own has those of its candidates. They accept all parameters that one of
// the candidates may accept, so that no order is refused which a broker would have taken:
//
//   - Candidates whose brokers give the same schema have that schema.
//   - A parameter has a schema if all candidates that take it describe it alike. It is required if all require it,
//     and unknown parameters are refused if all refuse them.
//   - Of a candidate with parameters of its own, the consumer's are those that its expressions read. One that is
//     sent on unchanged (size: ${parameters.size}) is required, and has the schema that the broker gives.

// hiding has the consumer's parameters that schemas call writeOnly, or that become part of such a one.
type hiding struct {
	Names []string `json:",omitempty"`
	// Others reports that parameters without a known name are among them.
	Others bool `json:",omitempty"`
}

// hiddenBy returns the parameters that a schema calls writeOnly.
func hiddenBy(schema map[string]any) hiding {
	search := jsonschema.NewWriteOnly(schema)
	return hiding{search.Properties(schema), search.Others(schema)}
}

// add adds further ones. The names are sorted.
func (h *hiding) add(more hiding) {
	h.Names, h.Others = lists.Sorted(h.Names, more.Names), h.Others || more.Others
}

// of returns the names of those that are hidden of given parameters: all of them if some have no known name.
func (h *hiding) of(given json.RawMessage) []string {
	if h.Others {
		return lists.Sorted(h.Names, workload.NamesOf(given))
	}
	return h.Names
}

// candidateSchemas returns the schemas of a plan's offered candidates, by their names, and the parameters of instances, and
// of bindings, that any candidate hides: a schema that several share may not say so.
func candidateSchemas(offers []offer) (all map[string]map[string]any, hidden, hiddenOfBindings hiding) {
	all = map[string]map[string]any{}
	for _, one := range []struct {
		name string
		of   func(offer) (theirs, template *runtime.RawExtension)
	}{
		{instanceCreate, func(o offer) (theirs, template *runtime.RawExtension) { return o.schemas.InstanceCreate, o.Parameters }},
		{instanceUpdate, func(o offer) (theirs, template *runtime.RawExtension) { return o.schemas.InstanceUpdate, o.Parameters }},
		{bindingCreate, func(o offer) (theirs, template *runtime.RawExtension) { return o.schemas.BindingCreate, nil }},
	} {
		var schemas []map[string]any
		for _, o := range offers {
			theirs, template := one.of(o)
			schema, secret := consumersSchema(decodeSchema(theirs), template)
			schemas = append(schemas, schema)
			if one.name == bindingCreate {
				hiddenOfBindings.add(secret)
			} else {
				hidden.add(secret)
			}
		}
		if shared := sharedParameters(schemas); shared != nil {
			all[one.name] = shared
		}
	}
	return all, hidden, hiddenOfBindings
}

// decodeSchema returns a broker's schema; one for any parameters if it gives none.
func decodeSchema(of *runtime.RawExtension) map[string]any {
	if of != nil {
		if decoded, err := jsonschema.Decode(of.Raw); err == nil {
			if object, ok := decoded.(map[string]any); ok {
				return object
			}
		}
	}
	return anyObject()
}

// consumersSchema returns the schema of the consumer's parameters for a candidate whose broker has a schema, and those that
// the broker hides. If the candidate has a template, the consumer's parameters are those that it reads.
func consumersSchema(theirs map[string]any, template *runtime.RawExtension) (schema map[string]any, hidden hiding) {
	if template == nil {
		return theirs, hiddenBy(theirs)
	}
	var sent any
	if utiljson.Unmarshal(template.Raw, &sent) != nil {
		return anyObject(), hiding{} // such a plan is not served
	}
	read := reading{writeOnly: jsonschema.NewWriteOnly(theirs), properties: map[string]any{}, required: map[string]bool{}}
	read.from(sent, theirs, theirs, false)
	schema = map[string]any{"type": "object", "properties": read.properties}
	if draft, ok := theirs["$schema"]; ok {
		schema["$schema"] = draft
	}
	if len(read.required) > 0 {
		schema["required"] = anySlice(slices.Sorted(maps.Keys(read.required)))
	}
	if !read.all {
		schema["additionalProperties"] = false
	}
	return schema, read.hidden
}

// reading collects the consumer's parameters that a template reads.
type reading struct {
	writeOnly  *jsonschema.WriteOnly // in the broker's schema
	properties map[string]any
	required   map[string]bool
	hidden     hiding
	all        bool // any parameter may be read
}

// from reads a value of the template that a broker's schema describes; nil means that none does. wherever is a schema of
// everything that may describe the value, to find what is writeOnly. hides reports that the value is part of one that is.
func (r *reading) from(value any, theirs map[string]any, wherever any, hides bool) {
	hides = hides || r.writeOnly.Is(wherever)
	switch value := value.(type) {
	case map[string]any:
		described, _ := theirs["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(value)) { // so that the last of several is always the same one
			schema, _ := described[name].(map[string]any)
			r.from(value[name], schema, r.writeOnly.Property(wherever, name), hides)
		}
	case []any:
		for _, one := range value {
			r.from(one, nil, nil, hides || r.writeOnly.Anywhere(wherever))
		}
	case string:
		hides = hides || r.writeOnly.Anywhere(wherever)
		uses, err := workload.UsesOf(value)
		if err != nil {
			uses.All = true // such a plan is not served
		}
		r.all = r.all || uses.All
		if hides {
			r.hidden.add(hiding{uses.Names, uses.All})
		}
		for _, name := range uses.Names {
			if r.properties[name] == nil {
				r.properties[name] = map[string]any{}
			}
		}
		if uses.Value == "" {
			return
		}
		r.required[uses.Value] = true
		if theirs != nil && isSelfContained(theirs) {
			r.properties[uses.Value] = theirs
		}
	}
}

// isSelfContained reports whether a part of a schema can stand in another one: it refers to nothing.
func isSelfContained(node any) bool {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" || !isSelfContained(value) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(node, func(one any) bool { return !isSelfContained(one) })
	}
	return true
}

// sharedParameters returns one schema for several: it accepts whatever one of them accepts. Nil means that it
// would accept everything.
func sharedParameters(schemas []map[string]any) map[string]any {
	first := schemas[0]
	differs := slices.ContainsFunc(schemas, func(s map[string]any) bool { return !reflect.DeepEqual(s, first) })
	switch {
	case !differs && reflect.DeepEqual(first, anyObject()):
		return nil
	case !differs:
		return first
	case slices.ContainsFunc(schemas, func(s map[string]any) bool { return !isPlain(s) }):
		return nil
	}
	shared, closed, sameDraft := map[string]any{}, true, true
	required := requiredBy(first)
	names := map[string]bool{}
	for _, s := range schemas {
		closed = closed && s["additionalProperties"] == false
		sameDraft = sameDraft && s["$schema"] == first["$schema"]
		required = slices.DeleteFunc(required, func(name any) bool { return !slices.Contains(requiredBy(s), name) })
		properties, _ := s["properties"].(map[string]any)
		for name := range properties {
			names[name] = true
		}
	}
	for name := range names {
		shared[name] = map[string]any{}
		if described := sharedProperty(name, schemas); described != nil && sameDraft {
			shared[name] = described
		}
	}
	schema := map[string]any{"type": "object", "properties": shared}
	if draft, ok := first["$schema"]; ok && sameDraft {
		schema["$schema"] = draft
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	if closed {
		schema["additionalProperties"] = false
	}
	return schema
}

// sharedProperty returns the schema of a parameter if all that take it describe it alike; otherwise nil.
func sharedProperty(name string, schemas []map[string]any) (shared map[string]any) {
	for _, s := range schemas {
		properties, _ := s["properties"].(map[string]any)
		described, ok := properties[name].(map[string]any)
		switch {
		case !ok && s["additionalProperties"] == false:
			continue // does not take it
		case !ok, !isSelfContained(described), shared != nil && !reflect.DeepEqual(shared, described):
			return nil
		}
		shared = described
	}
	return shared
}

func requiredBy(schema map[string]any) []any {
	required, _ := schema["required"].([]any)
	return slices.Clone(required)
}

// plainKeywords of a schema only list properties, or annotate them.
var plainKeywords = []string{
	"$schema", "$id", "id", "$comment", "title", "description", "examples", "default", "definitions", "$defs",
	"type", "properties", "required", "additionalProperties",
}

// isPlain reports whether a schema lists properties and says no more.
func isPlain(schema map[string]any) bool {
	for keyword := range schema {
		if !slices.Contains(plainKeywords, keyword) {
			return false
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, one := range properties {
		if _, ok := one.(map[string]any); !ok {
			return false
		}
	}
	_, isClosed := schema["additionalProperties"].(bool)
	return (schema["type"] == nil || schema["type"] == "object") && (isClosed || schema["additionalProperties"] == nil)
}
