package shape

import (
	"encoding/json"
	"math"
	"strconv"
)

// typedLiteral is an RDF literal.
type typedLiteral struct {
	text     string
	datatype datatype
}

// literalOf returns the literal that a value means (JSON-LD 1.1 API, value expansion and object
// to RDF conversion). The term's type applies. Without one, strings are xsd:string, and numbers
// are xsd:integer or xsd:double. A value that is not a literal, such as null, gives a literal
// without datatype.
func literalOf(value any, coercion datatype) typedLiteral {
	typed := func(text string, natural datatype) typedLiteral {
		if coercion != none && coercion != iri {
			natural = coercion
		}
		return typedLiteral{text: text, datatype: natural}
	}
	switch v := value.(type) {
	case string:
		return typed(v, xsdString)
	case bool:
		return typed(strconv.FormatBool(v), xsdBoolean)
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return typedLiteral{}
		}
		return number(f, typed)
	case float64:
		return number(v, typed)
	}
	return typedLiteral{}
}

func number(f float64, typed func(string, datatype) typedLiteral) typedLiteral {
	if f == math.Trunc(f) && math.Abs(f) < 1e21 {
		return typed(strconv.FormatFloat(f, 'f', 0, 64), xsdInteger)
	}
	return typed(strconv.FormatFloat(f, 'f', -1, 64), xsdDouble)
}

// valueObject returns the literal of an object with @value. Any other member except a datatype,
// such as @language, gives a literal without datatype.
func valueObject(object map[string]any) typedLiteral {
	declared, isTyped := object["@type"]
	if !isTyped {
		if len(object) != 1 {
			return typedLiteral{}
		}
		return literalOf(object["@value"], none)
	}
	name, ok := declared.(string)
	if !ok || len(object) != 2 {
		return typedLiteral{}
	}
	declaredType := compactDatatype(name)
	if declaredType == none || declaredType == iri {
		return typedLiteral{}
	}
	return literalOf(object["@value"], declaredType)
}
