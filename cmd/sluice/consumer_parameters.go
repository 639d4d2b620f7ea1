package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/internal/strictjson"
)

// parameter is a property of a parameters' schema.
type parameter struct {
	name     string
	required bool

	Type        any             `json:"type"`
	Enum        []any           `json:"enum"`
	Default     json.RawMessage `json:"default"`
	Description string          `json:"description"`
}

// parametersOf returns the properties of a schema, by name. A schema that cannot be read has none.
func parametersOf(schema json.RawMessage) (found []parameter) {
	var said struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &said) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(said.Properties)) {
		p := parameter{}
		_ = json.Unmarshal(said.Properties[name], &p) // what it cannot read, it does not show
		p.name, p.required = name, slices.Contains(said.Required, name)
		found = append(found, p)
	}
	return found
}

// kind returns the type in words.
func (p parameter) kind() string {
	either := p.Enum
	if len(either) == 0 {
		either, _ = p.Type.([]any)
	}
	if len(either) == 0 {
		either = []any{cmp.Or(p.Type, any("any"))}
	}
	var words []string
	for _, one := range either {
		words = append(words, fmt.Sprint(one))
	}
	return strings.Join(words, " or ")
}

// isText reports whether the parameter can only be a string.
func (p parameter) isText() bool { return p.Type == "string" }

// parameterFlags are the parameters of a request.
type parameterFlags struct {
	values   []string
	document string
}

func (f *parameterFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.values, "parameter", "p", nil, "parameter NAME=VALUE; the value is JSON, or else text; may be repeated")
	cmd.Flags().StringVar(&f.document, "parameters", "", "file with the parameters as JSON or YAML, or - for standard input; --parameter adds to it")
}

// read returns the parameters as a JSON object; nil if there are none. What a schema says is a string may be
// given without quotes, also if it looks like a number.
func (f *parameterFlags) read(cmd *cobra.Command, schema json.RawMessage) (json.RawMessage, error) {
	all := map[string]any{}
	if f.document != "" {
		document, err := readInput(cmd, f.document)
		if err == nil {
			err = strictjson.DecodeYAML(document, &all)
		}
		if err != nil {
			return nil, fmt.Errorf("--parameters: %w", err)
		}
	}
	known := parametersOf(schema)
	for _, given := range f.values {
		name, text, found := strings.Cut(given, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("--parameter %s: want NAME=VALUE", given)
		}
		var value any
		at := slices.IndexFunc(known, func(p parameter) bool { return p.name == name })
		if at >= 0 && known[at].isText() || json.Unmarshal([]byte(text), &value) != nil {
			value = text
		}
		all[name] = value
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}
