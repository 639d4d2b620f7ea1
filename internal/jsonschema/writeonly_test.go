package jsonschema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/jsonschema"
)

// TestWriteOnlyPart: of a schema there is left which properties are writeOnly, and all of one of which this is not known.
func TestWriteOnlyPart(t *testing.T) {
	for schema, want := range map[string]string{
		`{"properties": {"a": {"type": "string"}}}`:                                                                                              `null`,
		`{"properties": {"a": {"writeOnly": true}, "b": {"properties": {"c": {"writeOnly": true}, "d": {}}}}}`:                                   `{"properties":{"a":{"writeOnly":true},"b":{"properties":{"c":{"writeOnly":true}}}},"type":"object"}`,
		`{"allOf": [{"$ref": "#/x"}], "x": {"properties": {"a": {"writeOnly": true}}}}`:                                                          `{"properties":{"a":{"writeOnly":true}},"type":"object"}`,
		`{"properties": {"a": {"properties": {"b": {"$ref": "#"}, "c": {"writeOnly": true}}}}}`:                                                  `{"properties":{"a":{"properties":{"b":{"writeOnly":true},"c":{"writeOnly":true}}}},"type":"object"}`,
		`{"properties": {"a": {"$ref": "#/x"}}, "x": {"items": {"$ref": "#/x"}}}`:                                                                `null`,
		`{"properties": {"a": {"$ref": "#x"}, "b": {"$ref": "#/%"}, "c": {"$ref": "#/properties/9"}}}`:                                           `null`,
		`{"properties": {"a": {"$ref": "#x"}}, "$defs": {"any": {"$anchor": "x", "writeOnly": true}}}`:                                           `{"properties":{"a":{"writeOnly":true}},"type":"object"}`,
		`{"properties": {"a": {"$ref": "#x"}}, "definitions": {"any": {"$id": "#x", "writeOnly": true}}}`:                                        `{"properties":{"a":{"writeOnly":true}},"type":"object"}`,
		`{"properties": {"a": {"$dynamicRef": "#x"}}, "$defs": {"y": {"$dynamicAnchor": "x"}, "z": {"$dynamicAnchor": "x", "writeOnly": true}}}`: `{"properties":{"a":{"writeOnly":true}},"type":"object"}`,
		`{"properties": {"a": {"properties": {"b": {"$recursiveRef": "#"}, "c": {"writeOnly": true}}}}}`:                                         `{"properties":{"a":{"properties":{"b":{"writeOnly":true},"c":{"writeOnly":true}}}},"type":"object"}`,
		`{"properties": {"a": {"$id": "a", "$ref": "#/$defs/s", "$defs": {"s": {"writeOnly": true}}}}}`:                                          `{"properties":{"a":{"writeOnly":true}},"type":"object"}`,
		`{"properties": {"a": {"$ref": "https://example.org/secret"}, "id": {"type": "string"}}}`:                                                `{"properties":{"a":{"writeOnly":true}},"type":"object"}`,
		`{"properties": {"a": {"items": {"properties": {"b": {"writeOnly": true}}}}, "b": {"items": {}}}}`:                                       `{"properties":{"a":{"writeOnly":true}},"type":"object"}`,
		`{"properties": {"a": {"additionalProperties": {"writeOnly": true}}}}`:                                                                   `{"properties":{"a":{"additionalProperties":{"writeOnly":true}}},"type":"object"}`,
		`{"patternProperties": {"^a": {"writeOnly": true}}, "additionalProperties": {}}`:                                                         `{"additionalProperties":{"writeOnly":true},"type":"object"}`,
		`{"patternProperties": {"^a": {"writeOnly": true}}, "properties": {"ab": {"properties": {"c": {"writeOnly": true}, "d": {}}}}}`:          `{"additionalProperties":{"writeOnly":true},"properties":{"ab":{"writeOnly":true}},"type":"object"}`,
		`{"dependentSchemas": {"a": {"properties": {"b": {"writeOnly": true}}}}, "properties": {"a": {}}}`:                                       `{"properties":{"b":{"writeOnly":true}},"type":"object"}`,
	} {
		document, err := jsonschema.Decode([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(jsonschema.NewWriteOnly(document).Part(document))
		if err != nil || string(got) != want {
			t.Errorf("of %s there is %s, %v, want %s", schema, got, err, want)
		}
	}
}

// TestWriteOnlyOfMany: a schema that refers to so much that it cannot be looked through counts as writeOnly.
func TestWriteOnlyOfMany(t *testing.T) {
	parts := strings.Repeat(`{},`, 1000) + `{}`
	names := strings.Repeat(`{"properties": {"a": {"$ref": "#/x"}}},`, 1000) + `{}`
	document, err := jsonschema.Decode([]byte(`{"allOf": [` + names + `], "x": {"allOf": [` + strings.Repeat(`{"allOf": [`+parts+`]},`, 200) + `{}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := jsonschema.NewWriteOnly(document).Properties(document); len(got) != 1 {
		t.Errorf("%q are writeOnly", got)
	}
}
