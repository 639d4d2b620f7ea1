package catalog

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestHiddenByAnyCandidate: a parameter that one candidate's broker calls writeOnly is hidden, whatever the others say of
// it, whatever becomes of the schemas, and whatever the operator writes.
func TestHiddenByAnyCandidate(t *testing.T) {
	const (
		secret = `{"type": "object", "properties": {"key": {"type": "string", "writeOnly": true}}, "additionalProperties": false}`
		other  = `{"type": "object", "properties": {"key": {"type": "string", "maxLength": 8, "writeOnly": true}}, "additionalProperties": false}`
		plain  = `{"type": "object", "properties": {"key": {"type": "string"}}, "additionalProperties": false}`
		later  = `{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {"key": {"type": "string", "writeOnly": true}, "any": true}}`
		refers = `{"type": "object", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"type": "string", "writeOnly": true}}, "properties": {"key": {"$ref": "#/definitions/a"}}}`
		round  = `{"type": "object", "definitions": {"a": {"$ref": "#/definitions/a"}}, "properties": {"key": {"$ref": "#/definitions/a"}, "k": {"writeOnly": true}}}`
		parts  = `{"type": "object", "allOf": [{"properties": {"key": {"type": "string", "writeOnly": true}}}], "if": {"required": ["k"]}, "then": {"properties": {"k": {"writeOnly": true}}}}`
		object = `{"definitions": {"all": {"type": "object", "properties": {"key": {"writeOnly": true}}}}, "allOf": [{"$ref": "#/definitions/all"}]}`
		inPart = `{"$defs": {"a/b": {"writeOnly": true}}, "properties": {"key": {"type": "string", "anyOf": [{"type": "null"}, {"$ref": "#/$defs/a~1b"}]}, "k": {"$ref": "#/properties/key/anyOf/1"}}}`
		inner  = `{"definitions": {"login": {"type": "object", "properties": {"user": {"writeOnly": true}}}}, "properties": {"login": {"$ref": "#/definitions/login"}, "hosts": {"type": "array"}}}`
		deep   = `{"type": "object", "properties": {"login": {"type": "object", "writeOnly": true, "properties": {"user": {"type": "string"}}}, "hosts": {"type": "array"}}}`
		nested = `{"type": "object", "properties": {"size": {"type": "integer"}, "admin": {"type": "object", "properties": {"name": {"type": "string"}, "password": {"type": "string", "writeOnly": true}}}}}`
		list   = `{"type": "object", "properties": {"users": {"type": "array", "items": {"properties": {"password": {"writeOnly": true}}}}, "hosts": {"type": "array", "items": {"type": "string"}}}}`
		match  = `{"properties": {"api_key": {}, "plain": {}}, "patternProperties": {"_key$": {"writeOnly": true}}}`
		typed  = `{"properties": {"size": {}}, "additionalProperties": {"writeOnly": true}}`
		anyOf  = `{"type": "object", "properties": {"keys": {"type": "object", "additionalProperties": {"writeOnly": true}}, "tags": {"patternProperties": {"^x": {"type": "string"}}}}}`
	)
	long := `{"type": "object", "description": "` + fmt.Sprintf("%065000d", 0) + `", "properties": {"key": {"writeOnly": true}}}`
	type one struct{ schema, template string }
	for name, row := range map[string]struct {
		candidates []one
		hidden     string
		ofBindings string // if others, because candidates have no templates for their parameters
		edits      []edit
	}{
		"described differently":        {[]one{{secret, ""}, {other, ""}}, "[key]", "", nil},
		"by one of them":               {[]one{{plain, ""}, {secret, ""}}, "[key]", "", nil},
		"by none":                      {[]one{{plain, ""}, {plain, ""}}, "[]", "", nil},
		"in other drafts":              {[]one{{secret, ""}, {later, ""}}, "[key]", "", nil},
		"beside one that is true":      {[]one{{later, ""}}, "[key]", "", nil},
		"by reference":                 {[]one{{refers, ""}}, "[key]", "", nil},
		"by reference, in turn":        {[]one{{refers, ""}, {plain, ""}}, "[key]", "", nil},
		"in a circle":                  {[]one{{round, ""}}, "[k]", "", nil},
		"in parts":                     {[]one{{parts, ""}, {plain, ""}}, "[k key]", "", nil},
		"in an object referred to":     {[]one{{object, ""}, {plain, ""}}, "[key]", "", nil},
		"in a part of a property":      {[]one{{inPart, ""}}, "[k key]", "", nil},
		"inside of a reference":        {[]one{{inner, `{"login": {"user": "${parameters.name}"}, "hosts": ["${parameters.host}"]}`}}, "[name]", "[login]", nil},
		"in a schema too long":         {[]one{{long, ""}}, "[key]", "", nil},
		"as a part of a text":          {[]one{{secret, `{"key": "x-${parameters.pass}-${parameters.salt}"}`}}, "[pass salt]", "[key]", nil},
		"as a part of an object":       {[]one{{deep, `{"login": {"user": "${parameters.name}"}, "hosts": ["${parameters.host}"]}`}}, "[name]", "[login]", nil},
		"by a reference that is read":  {[]one{{refers, `{"key": "${parameters.pass}"}`}}, "[pass]", "[key]", nil},
		"inside of an object":          {[]one{{nested, ""}, {plain, ""}}, "[admin]", "", nil},
		"inside of a list":             {[]one{{list, ""}}, "[users]", "", nil},
		"under any name":               {[]one{{anyOf, ""}}, "[keys]", "", nil},
		"inside, sent on as a whole":   {[]one{{nested, `{"admin": "${parameters.login}", "size": "${parameters.size}"}`}}, "[login]", "[admin]", nil},
		"inside, sent on by itself":    {[]one{{nested, `{"admin": {"name": "${parameters.name}", "password": "${parameters.pass}"}}`}}, "[pass]", "[admin]", nil},
		"inside of a list, sent on":    {[]one{{list, `{"users": ["${parameters.user}"], "hosts": ["${parameters.host}"]}`}}, "[user]", "[users]", nil},
		"under any name, sent on":      {[]one{{anyOf, `{"keys": {"first": "${parameters.key}"}}`}}, "[key]", "[keys]", nil},
		"by a pattern, sent on":        {[]one{{match, `{"api_key": "${parameters.k}"}`}}, "[k]", "[]", nil},
		"by a name, not as others":     {[]one{{typed, `{"size": "${parameters.k}"}`}}, "[]", "", nil},
		"by the operator, inside":      {[]one{{plain, ""}}, "[admin]", "[]", []edit{schemas(nested, "", "")}},
		"though the operator does not": {[]one{{secret, ""}}, "[key]", "", []edit{schemas(`{"properties": {"key": {"type": "string"}}}`, `{"properties": {"key": {"type": "string"}}}`, "")}},
	} {
		t.Run(name, func(t *testing.T) {
			var brokers []v1alpha1.MemberCluster
			var candidates []v1alpha1.UpstreamCandidate
			for i, c := range row.candidates {
				name := fmt.Sprint("broker-", i)
				brokers, candidates = append(brokers, broker(name, c.schema, dbSmall)), append(candidates, candidate(name, c.template))
			}
			p := sold(t, brokers, append([]edit{upstream(candidates...)}, row.edits...)...)
			if got := fmt.Sprint(p.HiddenParameters(nil)); got != row.hidden {
				t.Errorf("%s are hidden, want %s", got, row.hidden)
			}
			if got := fmt.Sprint(p.HiddenBindingParameters(nil)); got != cmp.Or(row.ofBindings, row.hidden) {
				t.Errorf("%s of bindings are hidden, want %s", got, cmp.Or(row.ofBindings, row.hidden))
			}
		})
	}
}

// TestHiddenUnderAnyName: if parameters of which the name is not known are hidden, all are.
func TestHiddenUnderAnyName(t *testing.T) {
	const (
		pattern = `{"type": "object", "properties": {"size": {"type": "integer"}}, "patternProperties": {"_key$": {"writeOnly": true}}}`
		others  = `{"type": "object", "additionalProperties": {"properties": {"key": {"writeOnly": true}}}}`
		plain   = `{"type": "object", "additionalProperties": {"type": "string"}}`
		whole   = `{"type": "object", "properties": {"all": {"writeOnly": true}}}`
	)
	for name, row := range map[string]struct{ schema, template, hidden string }{
		"by a pattern":       {pattern, "", "[a_key size]"},
		"all others":         {others, "", "[a_key size]"},
		"none of them":       {plain, "", "[]"},
		"sent on as a whole": {whole, `{"all": "${parameters}"}`, "[a_key size]"},
	} {
		p := sold(t, []v1alpha1.MemberCluster{broker("eu", row.schema, dbSmall)}, upstream(candidate("eu", row.template)))
		if got := fmt.Sprint(p.HiddenParameters([]byte(`{"a_key": "x", "size": 1}`))); got != row.hidden {
			t.Errorf("%s: %s are hidden, want %s", name, got, row.hidden)
		}
	}
}

// TestUnread: it is known which parameters are hidden only once the schemas of all candidates have been read.
func TestUnread(t *testing.T) {
	const plain = `{"type": "object"}`
	unread := broker("us", "")
	unread.Status.Broker = nil
	for name, row := range map[string]struct {
		brokers []v1alpha1.MemberCluster
		want    bool
	}{
		"all read":                      {[]v1alpha1.MemberCluster{broker("eu", plain, dbSmall), broker("us", plain, dbSmall)}, false},
		"a broker not read":             {[]v1alpha1.MemberCluster{broker("eu", plain, dbSmall), unread}, true},
		"a broker's schemas not read":   {[]v1alpha1.MemberCluster{broker("eu", plain, dbSmall), broker("us", "", dbSmall)}, true},
		"a broker that does not offer":  {[]v1alpha1.MemberCluster{broker("eu", plain, dbSmall), broker("us", "")}, false},
		"a broker not in the inventory": {[]v1alpha1.MemberCluster{broker("eu", plain, dbSmall)}, false},
		"no broker that offers":         {[]v1alpha1.MemberCluster{broker("eu", "")}, true},
		"no broker":                     {nil, true},
	} {
		if got := sold(t, row.brokers, upstream(candidate("eu", ""), candidate("us", ""))).Unread; got != row.want {
			t.Errorf("%s: unread is %t, want %t", name, got, row.want)
		}
	}
}
