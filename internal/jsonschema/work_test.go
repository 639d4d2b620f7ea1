package jsonschema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/jsonschema"
)

// chain returns a schema of definitions a0 to a40, of which each is made from the name of the next, in a format.
func chain(format string) string {
	var definitions strings.Builder
	for i := range 40 {
		fmt.Fprintf(&definitions, `"a%d": %s, `, i, fmt.Sprintf(format, fmt.Sprintf(`{"$ref": "#/definitions/a%d"}`, i+1)))
	}
	return `{"$ref": "#/definitions/a0", "definitions": {` + definitions.String() + `"a40": {}}}`
}

// TestWork: a schema is refused if a value could be checked against very many schemas, and only then.
func TestWork(t *testing.T) {
	const draft07, later, middle = `"$schema": "http://json-schema.org/draft-07/schema#", `, `"$schema": "https://json-schema.org/draft/2020-12/schema", `, `"$schema": "https://json-schema.org/draft/2019-09/schema", `
	many := func(format string, number int) string {
		parts := make([]string, number)
		for i := range parts {
			parts[i] = strings.ReplaceAll(format, "N", fmt.Sprint(i))
		}
		return strings.Join(parts, ", ")
	}
	const forks, itself, leads = "against more than 5000 schemas", "leads back to itself without a step into the value", "leads to more than 100000 schemas"
	for name, row := range map[string]struct{ schema, refusal string }{
		"references that fork":                       {chain(`{"allOf": [%[1]s, %[1]s]}`), forks},
		"in alternatives":                            {chain(`{"anyOf": [%[1]s], "oneOf": [%[1]s], "not": %[1]s}`), forks},
		"in conditions":                              {strings.Replace(chain(`{"if": %[1]s, "then": %[1]s, "else": %[1]s}`), "{", "{"+draft07, 1), forks},
		"in dependencies":                            {chain(`{"dependencies": {"x": %[1]s, "y": %[1]s}}`), forks},
		"from a property to those inside of it":      {chain(`{"allOf": [{"properties": {"x": %[1]s}}, {"properties": {"x": %[1]s}}]}`), forks},
		"by a name and by all others":                {chain(`{"allOf": [{"properties": {"x": %[1]s}}, {"additionalProperties": %[1]s}]}`), forks},
		"by a name and by a pattern":                 {chain(`{"properties": {"x": %[1]s}, "patternProperties": {"^x": %[1]s}}`), forks},
		"from a list to its elements":                {strings.Replace(chain(`{"allOf": [{"items": %[1]s}, {"items": [%[1]s]}]}`), "{", "{"+draft07, 1), forks},
		"from a list of a later draft":               {strings.Replace(chain(`{"items": %[1]s, "contains": %[1]s}`), "{", "{"+later, 1), forks},
		"in names of properties":                     {strings.Replace(chain(`{"propertyNames": {"allOf": [%[1]s, %[1]s]}}`), "{", "{"+later, 1), forks},
		"a tree of which each node is checked twice": {`{"definitions": {"a": {"properties": {"x": {"$ref": "#"}}}}, "allOf": [{"$ref": "#/definitions/a"}, {"$ref": "#/definitions/a"}]}`, forks},
		"itself":              {`{"properties": {"a": {"$ref": "#/properties/a"}}}`, "#/properties/a " + itself},
		"itself, in turn":     {`{"anyOf": [{"$ref": "#/definitions/a"}], "definitions": {"a": {"not": {"$ref": "#"}}}}`, itself},
		"so in a later draft": {`{` + later + `"dependentSchemas": {"a": {"$ref": "#"}}}`, itself},
		"a dynamic reference": {`{` + later + `"$dynamicAnchor": "a", "properties": {"x": {"$dynamicRef": "#a"}}}`, "use $ref"},
		"a recursive one":     {`{` + middle + `"$recursiveAnchor": true, "properties": {"x": {"$recursiveRef": "#"}}}`, "use $ref"},
		"many at many places": {`{"definitions": {"a": {"anyOf": [` + many(`{"required": ["N"]}`, 2000) + `]}}, "properties": {` + many(`"N": {"title": "N", "allOf": [{"$ref": "#/definitions/a"}]}`, 100) + `}}`, leads},

		"a chain":                          {chain(`{"properties": {"x": %s}}`), ""},
		"a chain of alternatives":          {chain(`{"oneOf": [{"properties": {"x": %[1]s}}, {"properties": {"y": %[1]s}}]}`), ""},
		"a chain of lists":                 {strings.Replace(chain(`{"items": [%[1]s, %[1]s], "additionalItems": %[1]s}`), "{", "{"+draft07, 1), ""},
		"a chain of a name and all others": {chain(`{"properties": {"x": %[1]s}, "additionalProperties": %[1]s}`), ""},
		"a tree":                           {`{"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}`, ""},
		"an expression":                    {`{"oneOf": [{"type": "string"}, {"properties": {"and": {"items": {"$ref": "#"}}}}, {"properties": {"or": {"items": {"$ref": "#"}}}}, {"properties": {"not": {"$ref": "#"}}}]}`, ""},
		"a static dynamic reference":       {`{` + later + `"properties": {"x": {"$dynamicRef": "#/$defs/a"}}, "$defs": {"a": {}}}`, ""},
		"a list of choices":                {`{"properties": {"zone": {"oneOf": [` + many(`{"enum": ["N"], "title": "N"}`, 2000) + `]}}}`, ""},
		"a definition used often":          {`{"definitions": {"a": {"properties": {` + many(`"N": {"type": "string"}`, 100) + `}}}, "properties": {` + many(`"N": {"$ref": "#/definitions/a"}`, 1000) + `}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			compiled, err := jsonschema.Compile([]byte(row.schema))
			switch {
			case row.refusal == "" && err != nil:
				t.Error(err)
			case row.refusal == "":
				compiled.Validate(map[string]any{})
			case err == nil || !strings.Contains(err.Error(), row.refusal):
				t.Errorf("got %v, want %q", err, row.refusal)
			}
		})
	}
}
