package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/internal/jsonschema"
)

// field is an input of a form that is made from a JSON Schema.
type field struct {
	// Name of the input: the path of the property.
	Name string
	// Label and Description for people.
	Label, Description string
	// Kind selects the input: line for a short text, text for one that may have several lines, number, choice, group, or
	// json for everything else.
	Kind     string
	Required bool
	// Secret values are not on the page of a form that was refused. Lost means that one was given.
	Secret, Lost bool
	// Value in the input: the one given before, or nothing.
	Value string
	// Hint names the default.
	Hint      string
	Minimum   string
	Maximum   string
	Step      string
	MaxLength int
	Options   []option
	Fields    []field
}

// isText reports whether what is entered is a text, and not JSON.
func (f *field) isText() bool { return f.Kind == "line" || f.Kind == "text" }

// option of a choice. Its value is JSON.
type option struct {
	Value, Label string
	Selected     bool
}

// property is the part of a JSON Schema that forms are made from.
type property struct {
	Type        any                        `json:"type"`
	Title       string                     `json:"title"`
	Description string                     `json:"description"`
	Enum        []json.RawMessage          `json:"enum"`
	Default     json.RawMessage            `json:"default"`
	Minimum     *json.Number               `json:"minimum"`
	Maximum     *json.Number               `json:"maximum"`
	MaxLength   int                        `json:"maxLength"`
	Format      string                     `json:"format"`
	Properties  map[string]json.RawMessage `json:"properties"`
	Required    []string                   `json:"required"`
}

const (
	// parameterPrefix begins the names of inputs for parameters.
	parameterPrefix = "parameter"
	// deepest is how far objects within objects have inputs of their own; below, an object is JSON.
	deepest = 4
	// longestLine is the greatest maxLength of a text that has an input of one line. Browsers take the line ends out of
	// what is pasted there, for instance of a key.
	longestLine = 256
)

// formOf returns the inputs for the properties of a schema. given holds what was entered before; nil if nothing was.
func formOf(schema json.RawMessage, given url.Values) []field {
	var of property
	document, err := jsonschema.Decode(schema)
	if err != nil || decodeLoosely(schema, &of) != nil {
		return nil
	}
	m := maker{given: given, writeOnly: jsonschema.NewWriteOnly(document)}
	return m.fieldsOf(&of, document, &field{Name: parameterPrefix, Required: true}, 0)
}

// maker makes a form of one schema.
type maker struct {
	given     url.Values
	writeOnly *jsonschema.WriteOnly
}

// fieldsOf returns the inputs for the properties of a group. document is its schema, to look for secrets in.
func (m *maker) fieldsOf(of *property, document any, group *field, depth int) (fields []field) {
	object, _ := document.(map[string]any)
	inside, _ := object["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
		// Of a group that may be left out, nothing has to be entered.
		required := group.Required && slices.Contains(of.Required, name)
		secret := group.Secret || m.writeOnly.Is(m.writeOnly.Property(document, name))
		fields = append(fields, m.fieldOf(name, of.Properties[name], inside[name], field{Name: group.Name, Required: required, Secret: secret}, depth))
	}
	slices.SortStableFunc(fields, func(a, b field) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return fields
}

// fieldOf returns the input for a property of the group of which f has the name. What f says of the property holds. document is
// its schema, too.
func (m *maker) fieldOf(name string, schema json.RawMessage, document any, f field, depth int) field {
	f.Name += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	f.Label, f.Kind = name, "json"
	var of property
	err := decodeLoosely(schema, &of)
	isGroup := of.Type == "object" && len(of.Properties) > 0 && depth < deepest
	f.Secret = f.Secret || of.Format == "password" || !isGroup && m.writeOnly.Anywhere(document)
	if f.Value = m.given.Get(f.Name); f.Secret {
		f.Value, f.Lost = "", f.Value != ""
	}
	if err != nil {
		return f
	}
	if of.Title != "" {
		f.Label = of.Title
	}
	f.Description = of.Description
	if len(of.Default) > 0 {
		f.Hint = plainText(of.Default)
	}
	switch {
	case len(of.Enum) > 0 || of.Type == "boolean":
		f.Kind = "choice"
		f.Options = optionsOf(&f, of)
	case of.Type == "string":
		f.Kind, f.MaxLength = "text", of.MaxLength
		if of.Format == "password" || of.MaxLength > 0 && of.MaxLength <= longestLine {
			f.Kind = "line"
		}
	case of.Type == "integer", of.Type == "number":
		f.Kind, f.Step = "number", "any"
		if of.Type == "integer" {
			f.Step = "1"
		}
		if of.Minimum != nil {
			f.Minimum = of.Minimum.String()
		}
		if of.Maximum != nil {
			f.Maximum = of.Maximum.String()
		}
	case isGroup:
		f.Kind, f.Fields = "group", m.fieldsOf(&of, document, &f, depth+1)
	}
	return f
}

// optionsOf returns the values of a choice. One that is not required can be left to the broker. One that is required
// begins with its default; without a default, nothing is chosen.
func optionsOf(f *field, of property) []option {
	none, chosen := option{Label: "as the plan says"}, f.Value
	switch {
	case f.Required:
		none.Label, chosen = "choose…", cmp.Or(chosen, string(of.Default))
	case f.Hint != "":
		none.Label = "default: " + f.Hint
	}
	options := []option{none}
	values, isBool := of.Enum, len(of.Enum) == 0
	if isBool {
		values = []json.RawMessage{json.RawMessage("true"), json.RawMessage("false")}
	}
	for _, value := range values {
		label := plainText(value)
		if isBool {
			label = map[string]string{"true": "yes", "false": "no"}[label]
		}
		options = append(options, option{Value: string(value), Label: label, Selected: chosen == string(value)})
	}
	if f.Required && slices.ContainsFunc(options, func(o option) bool { return o.Selected }) {
		return options[1:]
	}
	return options
}

// plainText returns a string without quotes, and other values as JSON.
func plainText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// parametersOf reads a form. It returns nil if nothing was entered. The values are checked against the schema by the
// OSB API; the error is about one that is no JSON at all.
func parametersOf(fields []field, given url.Values) (json.RawMessage, error) {
	object, err := objectOf(fields, given)
	if err != nil || len(object) == 0 {
		return nil, err
	}
	return json.Marshal(object)
}

func objectOf(fields []field, given url.Values) (map[string]any, error) {
	object := map[string]any{}
	for _, f := range fields {
		text := given.Get(f.Name)
		if f.Kind == "group" {
			inner, err := objectOf(f.Fields, given)
			if err != nil {
				return nil, err
			}
			if len(inner) > 0 || f.Required {
				object[f.property()] = inner
			}
			continue
		}
		if strings.TrimSpace(text) == "" && !(f.isText() && text != "") {
			continue
		}
		value, err := f.read(text)
		if err != nil {
			return nil, err
		}
		object[f.property()] = value
	}
	return object, nil
}

// property returns the name of the property.
func (f *field) property() string {
	last := f.Name[strings.LastIndexByte(f.Name, '/')+1:]
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(last)
}

// read returns the value of an input.
func (f *field) read(text string) (any, error) {
	if f.isText() {
		return strings.ReplaceAll(text, "\r\n", "\n"), nil
	}
	text = strings.TrimSpace(text)
	if f.Kind == "number" {
		if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("%s: %q is not a number", f.Label, text)
		}
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("%s: want JSON, for instance [\"a\", \"b\"] or {\"a\": 1}", f.Label)
	}
	return json.RawMessage(text), nil
}

// decodeLoosely reads what it understands of a document, for instance of a schema, with numbers as they are written; a
// member of an unexpected type makes an error.
func decodeLoosely(document json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	return d.Decode(into)
}
