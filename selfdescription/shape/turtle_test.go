package shape

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// resource is a node of a Turtle document: its properties, by their names as written.
// A value is a string (a name, or a literal in its quotes), a resource or a list.
type resource map[string][]any

// text of the only value of a property, without quotes.
func (r resource) text(property string) string {
	if len(r[property]) == 0 {
		return ""
	}
	return strings.Trim(r[property][0].(string), `"`)
}

var turtleToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|<[^>]*>|@prefix|@[a-z-]+|\^\^|[\[\]();,]|\.\s|[^\s\[\]();,"]+`)

// turtle reads the part of Turtle that the published shapes use.
type turtle struct {
	tokens []string
}

func (t *turtle) next() string {
	token := strings.TrimSpace(t.tokens[0])
	t.tokens = t.tokens[1:]
	return token
}

func (t *turtle) peek() string { return strings.TrimSpace(t.tokens[0]) }

func (t *turtle) value() any {
	switch token := t.next(); token {
	case "[":
		return t.properties("]")
	case "(":
		list := []any{}
		for t.peek() != ")" {
			list = append(list, t.value())
		}
		t.next()
		return list
	default:
		return token
	}
}

func (t *turtle) properties(end string) resource {
	r := resource{}
	for t.peek() != end {
		property := t.next()
		for {
			r[property] = append(r[property], t.value())
			if t.peek() != "," {
				break
			}
			t.next()
		}
		if t.peek() == ";" {
			t.next()
		}
	}
	t.next()
	return r
}

// publishedShapes are the shapes of the release, by the class that they are for.
func publishedShapes(t *testing.T) map[string]resource {
	t.Helper()
	document, err := os.ReadFile("../../test/interop/testdata/gx.shacl.ttl")
	if err != nil {
		t.Fatal(err)
	}
	reader := &turtle{tokens: turtleToken.FindAllString(string(document), -1)}
	shapes := map[string]resource{}
	for len(reader.tokens) > 0 {
		if reader.peek() == "@prefix" {
			reader.tokens = reader.tokens[4:]
			continue
		}
		reader.next()
		shape := reader.properties(".")
		shapes[shape.text("sh:targetClass")] = shape
	}
	if len(shapes) < 100 {
		t.Fatalf("%d shapes read, want some 166", len(shapes))
	}
	return shapes
}
