package shape

import "slices"

// many means that an attribute may occur any number of times.
const many = 0

// class is a type of node, with the attributes of its nodes.
type class struct {
	// namespace is the prefix that a type and its attributes have in the Gaia-X
	// context; ownVocabulary for the classes of Sluice, which have none.
	namespace string
	// parents are its superclasses.
	parents []string
	// open allows attributes that are not in the table.
	open bool
	// part is true if nodes of the class have no type of their own: the attribute that contains
	// them implies it.
	part       bool
	attributes []attribute
}

// attribute is one property of a class: how often it occurs, and its values.
type attribute struct {
	// term is the attribute's name in the context.
	term string
	// key is the alternative name: the prefix that the context has for the namespace, and the
	// name there. Empty means none.
	key string
	// min and max are cardinalities; max may be many.
	min, max int
	// coercion is the type that the context gives to a string under the term: iri, a
	// datatype, or none.
	coercion datatype
	// values are the alternatives; each value must fit one.
	values []alternative
}

// alternative is one kind of value: a node of a class, or a literal.
type alternative struct {
	class string
	// datatype of a literal, if class is empty.
	datatype datatype
	// fits reports whether the text of a literal of the datatype is an allowed value; nil
	// allows all. rule names this constraint.
	fits func(text string) bool
	rule string
}

const (
	gaiaX         = "gx:"
	ownVocabulary = ""
)

// closed returns a class of Gaia-X that has these attributes and no others.
func closed(attributes ...attribute) class {
	for i := range attributes {
		if attributes[i].key == "" {
			attributes[i].key = gaiaX + attributes[i].term
		}
	}
	return class{namespace: gaiaX, attributes: attributes}
}

// own returns a class of Sluice.
func own(attributes ...attribute) class {
	return class{namespace: ownVocabulary, attributes: attributes}
}

func (c class) kindOf(parents ...string) class {
	c.parents = parents
	return c
}

// openClass returns a class of Gaia-X whose nodes may have further attributes.
func openClass(attributes ...attribute) class {
	c := closed(attributes...)
	c.open = true
	return c
}

// node returns an attribute whose values are nodes of one of the classes.
func node(term string, minCount, maxCount int, classes ...string) attribute {
	a := attribute{term: term, min: minCount, max: maxCount, coercion: iri}
	return a.or(classes...)
}

// literal returns an attribute whose values and whose term have a datatype.
func literal(t datatype, term string, minCount, maxCount int) attribute {
	a := attribute{term: term, min: minCount, max: maxCount, values: []alternative{{datatype: t}}}
	if t != xsdString {
		a.coercion = t
	}
	return a
}

func text(term string, minCount, maxCount int) attribute {
	return literal(xsdString, term, minCount, maxCount)
}

// listed returns an attribute whose values are strings of a list.
func listed(term string, minCount, maxCount int, fits func(string) bool) attribute {
	return text(term, minCount, maxCount).fitting("in", fits)
}

// or adds classes that the values of an attribute may have.
func (a attribute) or(classes ...string) attribute {
	for _, c := range classes {
		a.values = append(a.values, alternative{class: c})
	}
	return a
}

// orLiteral adds a datatype that the values of an attribute may have.
func (a attribute) orLiteral(t datatype) attribute {
	a.values = append(a.values, alternative{datatype: t})
	return a
}

// fitting constrains the values of an attribute with a single alternative.
func (a attribute) fitting(rule string, fits func(string) bool) attribute {
	a.values[0].rule, a.values[0].fits = rule, fits
	return a
}

// as sets the key of an attribute that is not in the namespace of its class.
func (a attribute) as(key string) attribute {
	a.key = key
	return a
}

// coerced gives the term of an attribute another type than its values have. The Gaia-X context
// has some of these; such a value can only be written as a value object.
func (a attribute) coerced(t datatype) attribute {
	a.coercion = t
	return a
}

// Is reports whether a type without prefix is a class of the tables or one of its subclasses.
func Is(name, class string) bool {
	if name == class {
		return true
	}
	return slices.ContainsFunc(classes[name].parents, func(parent string) bool { return Is(parent, class) })
}
