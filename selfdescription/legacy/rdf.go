package legacy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-dev/sluice/selfdescription/legacy/rdfc"
)

// maxQuads is the most RDF statements of a document.
const maxQuads = 10_000

const (
	rdfType  = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
	rdfFirst = "http://www.w3.org/1999/02/22-rdf-syntax-ns#first"
	rdfRest  = "http://www.w3.org/1999/02/22-rdf-syntax-ns#rest"
	rdfNil   = "http://www.w3.org/1999/02/22-rdf-syntax-ns#nil"

	xsd        = "http://www.w3.org/2001/XMLSchema#"
	xsdBoolean = xsd + "boolean"
	xsdInteger = xsd + "integer"
	xsdDouble  = xsd + "double"
)

// dataset converts an expanded node to RDF (JSON-LD 1.1 API, 7.1) and drops nothing: a part
// without a meaning in RDF, or with a meaning that depends on the document's location, is an
// error. It supports only the JSON-LD that credentials need: no graphs, no reverse properties.
func dataset(node map[string]any) ([]rdfc.Quad, error) {
	c := &conversion{described: map[string]bool{}}
	if _, err := c.node(node); err != nil {
		return nil, err
	}
	return c.quads, nil
}

type conversion struct {
	quads []rdfc.Quad
	// described are the identifiers of nodes that have properties. One node in two places is
	// one node in RDF; its properties could be moved between them without touching the
	// signature.
	described map[string]bool
	unnamed   int
}

func (c *conversion) add(subject rdfc.Term, predicate string, object rdfc.Term) error {
	if len(c.quads) == maxQuads {
		return fmt.Errorf("more than %d statements", maxQuads)
	}
	c.quads = append(c.quads, rdfc.Quad{Subject: subject, Predicate: iri(predicate), Object: object})
	return nil
}

func iri(value string) rdfc.Term { return rdfc.Term{Kind: rdfc.IRI, Value: value} }

var absoluteForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^` + "`" + `\\]*$`)

// isAbsolute reports whether text is an IRI with a scheme (RFC 3987).
func isAbsolute(text string) bool { return absoluteForm.MatchString(text) }

// blank returns a new blank node. The prefix keeps these apart from the document's own.
func (c *conversion) blank() rdfc.Term {
	c.unnamed++
	return rdfc.Term{Kind: rdfc.Blank, Value: "u" + strconv.Itoa(c.unnamed)}
}

func (c *conversion) node(node map[string]any) (rdfc.Term, error) {
	subject, err := c.subject(node)
	if err != nil {
		return rdfc.Term{}, err
	}
	for _, property := range slices.Sorted(maps.Keys(node)) {
		values, ok := node[property].([]any)
		switch {
		case property == "@id":
			continue
		case property == "@type":
			for _, name := range values {
				text, _ := name.(string)
				if !isAbsolute(text) {
					return rdfc.Term{}, fmt.Errorf("@type: undefined type %.80q", name)
				}
				if err := c.add(subject, rdfType, iri(text)); err != nil {
					return rdfc.Term{}, err
				}
			}
			continue
		case !isAbsolute(property): // for instance a keyword that the context has an alias for
			return rdfc.Term{}, fmt.Errorf("undefined term %.80q", property)
		case !ok:
			return rdfc.Term{}, fmt.Errorf("%s: want an array, got %T", property, node[property])
		}
		for _, value := range values {
			object, err := c.object(value)
			if err != nil {
				return rdfc.Term{}, fmt.Errorf("%s: %w", property, err)
			}
			if err := c.add(subject, property, object); err != nil {
				return rdfc.Term{}, err
			}
		}
	}
	return subject, nil
}

func (c *conversion) subject(node map[string]any) (rdfc.Term, error) {
	name, named := node["@id"]
	if !named {
		return c.blank(), nil
	}
	id, ok := name.(string)
	if len(node) > 1 {
		if c.described[id] {
			return rdfc.Term{}, fmt.Errorf("@id: %.80q is described in two places", id)
		}
		c.described[id] = true
	}
	if label, isBlank := strings.CutPrefix(id, "_:"); isBlank && label != "" {
		return rdfc.Term{Kind: rdfc.Blank, Value: "d" + label}, nil
	}
	if !ok || !isAbsolute(id) {
		return rdfc.Term{}, fmt.Errorf("@id: relative or malformed IRI %.80q", id)
	}
	return iri(id), nil
}

func (c *conversion) object(value any) (rdfc.Term, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return rdfc.Term{}, fmt.Errorf("want an object, got %T", value)
	}
	if _, isLiteral := object["@value"]; isLiteral {
		return literal(object)
	}
	if list, isList := object["@list"]; isList {
		values, ok := list.([]any)
		if !ok || len(object) > 1 {
			return rdfc.Term{}, fmt.Errorf("@list: want an array and nothing beside it")
		}
		return c.list(values)
	}
	return c.node(object)
}

// list converts the values to a linked list and returns its head.
func (c *conversion) list(values []any) (rdfc.Term, error) {
	head := iri(rdfNil)
	for _, value := range slices.Backward(values) {
		object, err := c.object(value)
		if err != nil {
			return rdfc.Term{}, fmt.Errorf("@list: %w", err)
		}
		cell := c.blank()
		if err := c.add(cell, rdfFirst, object); err != nil {
			return rdfc.Term{}, err
		}
		if err := c.add(cell, rdfRest, head); err != nil {
			return rdfc.Term{}, err
		}
		head = cell
	}
	return head, nil
}

// literal converts a value object (JSON-LD 1.1 API, 7.2).
func literal(object map[string]any) (rdfc.Term, error) {
	t := rdfc.Term{Kind: rdfc.Literal}
	for member, value := range object {
		text, ok := value.(string)
		switch member {
		case "@value":
			continue
		case "@type":
			t.Datatype = text
			ok = ok && isAbsolute(text)
		case "@language":
			t.Language = text
			ok = ok && text != ""
		default:
			ok = false
		}
		if !ok {
			return rdfc.Term{}, fmt.Errorf("%s: %.80v is not read in a literal", member, value)
		}
	}
	switch value := object["@value"].(type) {
	case string:
		t.Value = value
	case bool:
		t.Value = strconv.FormatBool(value)
		t.Datatype = cmp.Or(t.Datatype, xsdBoolean)
	case float64:
		if value == 0 {
			value = 0 // of either sign, as in ECMAScript
		}
		if value == math.Trunc(value) && math.Abs(value) < 1e21 && t.Datatype != xsdDouble {
			t.Value = strconv.FormatFloat(value, 'f', 0, 64)
			t.Datatype = cmp.Or(t.Datatype, xsdInteger)
		} else {
			t.Value = canonicalDouble(value)
			t.Datatype = cmp.Or(t.Datatype, xsdDouble)
		}
	default:
		return rdfc.Term{}, fmt.Errorf("@value: want a string, a number or a boolean, got %T", value)
	}
	return t, nil
}

var doubleZeros = regexp.MustCompile(`(\d)0*E\+?(-?)0*(\d)`)

// canonicalDouble returns the canonical form of an xsd:double (JSON-LD 1.1 API, 8.6).
func canonicalDouble(value float64) string {
	return doubleZeros.ReplaceAllString(fmt.Sprintf("%.15E", value), "${1}E${2}${3}")
}
