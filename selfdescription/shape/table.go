package shape

// many is no limit to how often an attribute occurs.
const many = 0

// class is a type of node and what its nodes may say.
type class struct {
	// namespace is the prefix that a type and its attributes have in the Gaia-X
	// context; ownVocabulary for the classes of Sluice, which have none.
	namespace string
	// parents are the classes that it is a kind of.
	parents []string
	// open allows attributes that are not in the table.
	open bool
	// part says that nodes of the class have no type of their own: the attribute that
	// they are the value of implies it.
	part       bool
	attributes []attribute
}

// attribute is one property of a class: how often it occurs, and what its values are.
type attribute struct {
	// term is what the context calls the attribute.
	term string
	// key is the other way to write it: the prefix that the context has for the
	// namespace, and the name there. Empty: there is none.
	key string
	// min and max are cardinalities; max may be many.
	min, max int
	// coercion is the type that the context gives to a string under the term: iri, a
	// datatype, or none.
	coercion datatype
	// values are the alternatives for each value; it must fit one.
	values []alternative
}

// alternative is one kind of value: a node of a class, or a literal.
type alternative struct {
	class string
	// datatype of a literal, if class is empty.
	datatype datatype
	// fits says whether the text of a literal of the datatype is among the values
	// allowed; nil allows all. rule names this constraint.
	fits func(text string) bool
	rule string
}

const (
	gaiaX         = "gx:"
	ownVocabulary = ""
)

// closed is a class of Gaia-X that has these attributes and no other.
func closed(attributes ...attribute) class {
	for i := range attributes {
		if attributes[i].key == "" {
			attributes[i].key = gaiaX + attributes[i].term
		}
	}
	return class{namespace: gaiaX, attributes: attributes}
}

// own is a class of Sluice.
func own(attributes ...attribute) class {
	return class{namespace: ownVocabulary, attributes: attributes}
}

func (c class) kindOf(parents ...string) class {
	c.parents = parents
	return c
}

// openClass is a class of Gaia-X whose nodes may have more attributes.
func openClass(attributes ...attribute) class {
	c := closed(attributes...)
	c.open = true
	return c
}

// node is an attribute whose values are nodes of one of the classes.
func node(term string, minCount, maxCount int, classes ...string) attribute {
	a := attribute{term: term, min: minCount, max: maxCount, coercion: iri}
	return a.or(classes...)
}

// literal is an attribute whose values are of a datatype, which its term has as well.
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

// listed is an attribute whose values are strings of a list.
func listed(term string, minCount, maxCount int, fits func(string) bool) attribute {
	return text(term, minCount, maxCount).fitting("in", fits)
}

// or adds classes to what the values of an attribute may be.
func (a attribute) or(classes ...string) attribute {
	for _, c := range classes {
		a.values = append(a.values, alternative{class: c})
	}
	return a
}

// orLiteral adds a datatype to what the values of an attribute may be.
func (a attribute) orLiteral(t datatype) attribute {
	a.values = append(a.values, alternative{datatype: t})
	return a
}

// fitting constrains the values of an attribute with a single alternative.
func (a attribute) fitting(rule string, fits func(string) bool) attribute {
	a.values[0].rule, a.values[0].fits = rule, fits
	return a
}

// as names the key of an attribute that is not of the namespace of its class.
func (a attribute) as(key string) attribute {
	a.key = key
	return a
}

// coerced gives the term of an attribute a type other than that of its values: the
// context of Gaia-X has some of these, with the effect that such a value can only be
// written as a value object.
func (a attribute) coerced(t datatype) attribute {
	a.coercion = t
	return a
}

// is says whether a node of class name is one of class want.
func is(name, want string) bool {
	if name == want {
		return true
	}
	for _, parent := range classes[name].parents {
		if is(parent, want) {
			return true
		}
	}
	return false
}
