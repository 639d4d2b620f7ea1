package console

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"k8s.io/utils/clock"
)

// rendered returns the inputs for a schema as a page has them.
func rendered(t *testing.T, schema string, given url.Values) string {
	t.Helper()
	pages, err := parseTemplates(clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := pages["order"].ExecuteTemplate(&page, "fields", formOf(json.RawMessage(schema), given)); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// hasAttribute reports whether an element has an attribute.
func hasAttribute(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// untouched returns what a browser sends of a form in which nobody has entered anything, and the inputs without which it
// does not send the form.
func untouched(t *testing.T, page string) (sent url.Values, missing []string) {
	t.Helper()
	sent = url.Values{}
	err := nodes(page, func(n *html.Node) {
		name, value := attributeOf(n, "name"), attributeOf(n, "value")
		if name == "" {
			return
		}
		if n.Data == "select" {
			chosen := n.FirstChild
			for option := range n.ChildNodes() {
				if hasAttribute(option, "selected") {
					chosen = option
				}
			}
			value = attributeOf(chosen, "value")
		}
		if sent.Set(name, value); value == "" && hasAttribute(n, "required") {
			missing = append(missing, name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent, missing
}

// TestUntouchedForms: of a form in which nobody has entered anything, only defaults are sent that have to be there, and
// what has to be entered is asked for.
func TestUntouchedForms(t *testing.T) {
	for name, row := range map[string]struct{ schema, want, missing string }{
		"a group that can be left out": {
			schema: `{"properties": {"backup": {"type": "object", "required": ["schedule", "bucket"], "properties": {"schedule": {"enum": ["daily", "weekly"]}, "bucket": {"type": "string"}}}}}`,
		},
		"a group in one that can be left out": {
			schema: `{"properties": {"backup": {"type": "object", "required": ["to"], "properties": {"to": {"type": "object", "required": ["bucket", "tls"], "properties": {"bucket": {"type": "string"}, "tls": {"type": "boolean", "default": true}}}}}}}`,
		},
		"a group in one that is required": {
			schema: `{"required": ["backup"], "properties": {"backup": {"type": "object", "required": ["to"], "properties": {"to": {"type": "object", "required": ["bucket"], "properties": {"bucket": {"type": "string"}, "region": {"type": "string"}}}}}}}`,
			want:   `{"backup":{"to":{}}}`, missing: "parameter/backup/to/bucket",
		},
		"a required choice":                      {schema: `{"required": ["size"], "properties": {"size": {"enum": ["large", "small"]}}}`, missing: "parameter/size"},
		"a required choice with a default":       {schema: `{"required": ["size"], "properties": {"size": {"enum": ["large", "small"], "default": "small"}}}`, want: `{"size":"small"}`},
		"a required choice with another default": {schema: `{"required": ["size"], "properties": {"size": {"enum": ["large", "small"], "default": "huge"}}}`, missing: "parameter/size"},
		"a choice with a default":                {schema: `{"properties": {"size": {"enum": ["large", "small"], "default": "small"}}}`},
		"a required yes or no":                   {schema: `{"required": ["tls"], "properties": {"tls": {"type": "boolean"}}}`, missing: "parameter/tls"},
		"a required yes or no with a default":    {schema: `{"required": ["tls"], "properties": {"tls": {"type": "boolean", "default": false}}}`, want: `{"tls":false}`},
		"a yes or no with a default":             {schema: `{"properties": {"tls": {"type": "boolean", "default": true}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			sent, missing := untouched(t, rendered(t, row.schema, nil))
			got, err := parametersOf(formOf(json.RawMessage(row.schema), nil), sent)
			if err != nil || string(got) != row.want || strings.Join(missing, " ") != row.missing {
				t.Errorf("sent is %s, %v, and missing %q; want %s and %q", got, err, missing, row.want, row.missing)
			}
		})
	}
	const schema = `{"required": ["size"], "properties": {"size": {"enum": ["large", "small"], "default": "small"}}}`
	if sent, _ := untouched(t, rendered(t, schema, url.Values{"parameter/size": {`"large"`}})); sent.Get("parameter/size") != `"large"` {
		t.Errorf("after a refusal, %v is chosen", sent)
	}
}

// TestSecretInputs: what was entered into a form is on its page again when it was refused, except secrets. A text that may
// have several lines has an input that keeps them.
func TestSecretInputs(t *testing.T) {
	const schema = `{"definitions": {"pin": {"type": "string", "writeOnly": true}, "user": {"type": "object", "properties": {"pin": {"writeOnly": true}}}},
		"allOf": [{"properties": {"inPart": {"writeOnly": true}}}], "properties": {
		"referred": {"$ref": "#/definitions/pin"}, "either": {"type": "string", "oneOf": [{"maxLength": 4}, {"$ref": "#/definitions/pin"}]}, "inPart": {"type": "string"},
		"user": {"$ref": "#/definitions/user"}, "users": {"type": "array", "items": {"$ref": "#/definitions/user"}},
		"group": {"type": "object", "allOf": [{"$ref": "#/definitions/user"}], "properties": {"pin": {"type": "string"}}},
		"certificate": {"type": "object", "writeOnly": true, "properties": {"chain": {"type": "string"}, "key": {"type": "string", "maxLength": 10000}}},
		"registry": {"type": "object", "writeOnly": true, "properties": {"password": {"type": "string", "maxLength": 256}, "more": {"type": "object", "properties": {"pin": {"type": "integer"}, "kind": {"enum": ["one"]}}}}},
		"object": {"type": "object", "writeOnly": true}, "odd": {"type": "string", "writeOnly": true, "maxLength": "ten"}, "login": {"type": "string", "format": "password"},
		"token": {"type": "string", "writeOnly": true}, "left": {"type": "string", "writeOnly": true}, "page": {"type": "string"}, "label": {"type": "string", "maxLength": 63}}}`
	inputs := map[string]string{
		"referred": "textarea secret", "either": "textarea secret", "inPart": "textarea secret", "user": "textarea secret", "users": "textarea secret", "group/pin": "textarea secret",
		"certificate/chain": "textarea secret", "certificate/key": "textarea secret", "registry/password": "input password", "registry/more/pin": "input number", "registry/more/kind": "select",
		"object": "textarea secret", "odd": "textarea secret", "login": "input password", "token": "textarea secret", "left": "textarea secret", "page": "textarea", "label": "input",
	}
	given := url.Values{}
	for name := range inputs {
		given.Set(parameterPrefix+"/"+name, `"hidden"`)
	}
	given.Set("parameter/registry/more/pin", "4711")
	given.Set("parameter/registry/more/kind", `"one"`)
	given.Set("parameter/page", "shown\r\nas it is")
	given.Set("parameter/label", "shown")
	given.Del("parameter/left")

	page := rendered(t, schema, given)
	if strings.Contains(page, "4711") || strings.Contains(page, "hidden") || strings.Contains(page, " selected") {
		t.Errorf("a secret is on the page: %s", page)
	}
	if got := strings.Count(page, "Enter it again; it was not kept."); got != 15 {
		t.Errorf("%d secrets of 15 are asked for again: %s", got, page)
	}
	if text := words(page); !strings.Contains(text, "shown as it is") || !strings.Contains(page, `value="shown"`) {
		t.Errorf("what was entered is lost: %s", page)
	}
	err := nodes(page, func(n *html.Node) {
		name, found := strings.CutPrefix(attributeOf(n, "name"), parameterPrefix+"/")
		if !found {
			return
		}
		if got := strings.TrimSpace(n.Data + " " + attributeOf(n, "type") + attributeOf(n, "class")); got != inputs[name] {
			t.Errorf("%s has an input %q, want %q", name, got, inputs[name])
		}
		delete(inputs, name)
	})
	if err != nil || len(inputs) > 0 {
		t.Errorf("%v have no input, %v", inputs, err)
	}
}
