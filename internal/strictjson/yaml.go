package strictjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	yamltree "go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// DecodeYAML reads one document of YAML, or JSON, into the value that into points to, by the rules of Kubernetes. It
// refuses fields that are unknown or repeated. Its errors give the path and the line of the field, and quote no value
// of a field of a plain type, because files with secrets are read by it.
func DecodeYAML(document []byte, into any) error {
	converted, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	unknown, err := kjson.UnmarshalStrict(converted, into)
	switch {
	case err != nil:
		return typeError(document, converted, into, err)
	case len(unknown) > 0:
		path := ""
		if at := kjson.FieldError(nil); errors.As(unknown[0], &at) {
			path = at.FieldPath()
		}
		return fmt.Errorf("%s: unknown field", place(document, path))
	}
	return nil
}

// typeError returns an error that names the field with the wrong type.
func typeError(document, converted []byte, into any, err error) error {
	wrong := (*stdjson.UnmarshalTypeError)(nil)
	if !errors.As(stdjson.Unmarshal(converted, into), &wrong) {
		return err // an error of a custom UnmarshalJSON
	}
	path := pathAt(converted, wrong.Offset)
	got, _, _ := strings.Cut(wrong.Value, " ") // "number 1e99" quotes
	return fmt.Errorf("%s: want a %s, got a %s", place(document, path), wrong.Type, got)
}

// pathAt returns the path of the value that ends at, or spans, an offset of a JSON document.
func pathAt(document []byte, offset int64) string {
	decoder := jsontext.NewDecoder(bytes.NewReader(document))
	for {
		if _, err := decoder.ReadToken(); err != nil {
			return ""
		}
		if decoder.InputOffset() >= offset {
			break
		}
	}
	var path strings.Builder
	for token := range decoder.StackPointer().Tokens() {
		if _, err := strconv.Atoi(token); err == nil {
			path.WriteString("[" + token + "]")
			continue
		}
		if path.Len() > 0 {
			path.WriteByte('.')
		}
		path.WriteString(token)
	}
	return path.String()
}

// place returns a field's path, with its line in the document if that is found.
func place(document []byte, path string) string {
	if line := lineOf(document, path); line > 0 {
		return fmt.Sprintf("line %d: %s", line, path)
	}
	return path
}

// step is a member or an index in a path such as spec.plans[0].name.
var step = regexp.MustCompile(`[^.\[\]]+|\[\d+\]`)

// lineOf returns the line of the field with a path in a YAML document; 0 if it is not found.
func lineOf(document []byte, path string) int {
	var root yamltree.Node
	if err := yamltree.Unmarshal(document, &root); err != nil || len(root.Content) == 0 {
		return 0
	}
	node, line := root.Content[0], 0
	for _, name := range step.FindAllString(path, -1) {
		for node.Kind == yamltree.AliasNode {
			node = node.Alias
		}
		node, line = child(node, name)
		if node == nil {
			return 0
		}
	}
	return line
}

// child returns a member or an element of a node, and its line.
func child(node *yamltree.Node, name string) (*yamltree.Node, int) {
	switch node.Kind {
	case yamltree.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == name {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	case yamltree.SequenceNode:
		if i, err := strconv.Atoi(strings.Trim(name, "[]")); err == nil && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line
		}
	}
	return nil, 0
}
