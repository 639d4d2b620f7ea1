// Package jsonschema checks values against JSON Schemas that fetch nothing, and describes a violation
// in one sentence.
package jsonschema

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// Decode decodes JSON with its numbers as they are written.
func Decode(document []byte) (any, error) {
	return jsonschema.UnmarshalJSON(bytes.NewReader(document))
}

// Compile is CompileTrusted for schemas of others. It refuses those by which one part of a value would be checked against
// more than 5000 schemas, counted each time that references lead to them: a few references that fork can make the check of
// an empty object endless.
func Compile(document []byte) (*Schema, error) {
	schema, err := CompileTrusted(document)
	if err != nil {
		return nil, err
	}
	if err := checkWork(schema.compiled); err != nil {
		return nil, err
	}
	return schema, nil
}

// CompileTrusted compiles a schema. It refuses references that leave the document. How long a check takes has no bound.
func CompileTrusted(document []byte) (*Schema, error) {
	parsed, err := Decode(document)
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if ref := externalRef(parsed); ref != "" {
		return nil, fmt.Errorf("refers to %q; only references within the schema, starting with #, are allowed", ref)
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
	return &Schema{compiled}, nil
}

// noLoader refuses to load anything: a schema must not make Sluice read files or call hosts.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is neither a known draft of JSON Schema nor part of the schema", url)
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

// Violation is one reason why a value does not match its schema.
type Violation struct {
	// Path is a JSON Pointer to the wrong part; empty means the whole value.
	Path string
	// Message is a sentence without its full stop. It may contain the wrong value and the expected
	// one, so that it does not belong into logs.
	Message string
	// Unknown reports that the schema allows nothing at Path.
	Unknown bool
}

// isIn reports whether the wrong part is a property of the whole value, or inside of it.
func (v *Violation) isIn(property string) bool {
	at := Pointer(property)
	return v.Path == at || strings.HasPrefix(v.Path, at+"/")
}

// ValidateBeside is Validate for an object that has kept some of its properties. It removes those of them that do not match
// the schema, and returns the first violation of the rest.
func (s *Schema) ValidateBeside(object map[string]any, kept []string) *Violation {
	for {
		violation := s.Validate(object)
		at := slices.IndexFunc(kept, func(name string) bool { return violation != nil && violation.isIn(name) })
		if at < 0 {
			return violation
		}
		delete(object, kept[at])
		kept = slices.Delete(slices.Clone(kept), at, at+1)
	}
}

// Validate returns the first specific violation; nil if the value matches the schema.
func (s *Schema) Validate(value any) *Violation {
	err := s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return &Violation{Message: "cannot be checked against the schema"}
	}
	cause := firstCause(invalid)
	location := cause.InstanceLocation
	unknown, isUnknown := cause.ErrorKind.(*kind.AdditionalProperties)
	if isUnknown && len(unknown.Properties) > 0 {
		location = append(slices.Clone(location), slices.Min(unknown.Properties))
	}
	return &Violation{
		Path: Pointer(location...), Unknown: isUnknown,
		Message: cause.ErrorKind.LocalizedString(message.NewPrinter(language.English)), // a printer is not safe for concurrent use
	}
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

// Pointer returns a JSON Pointer (RFC 6901): empty for the whole value.
func Pointer(location ...string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}
