package rdfc

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of a Term.
type Kind int

// Kinds of terms. None, the zero value, is the name of the default graph.
const (
	None Kind = iota
	IRI
	Blank
	Literal
)

// Term is a node of RDF, or its absence.
type Term struct {
	Kind Kind
	// Value is the IRI, the lexical form of the literal, or the identifier of the blank
	// node without "_:".
	Value string
	// Datatype is the IRI of a literal's datatype; empty means xsd:string, or
	// rdf:langString if there is a Language.
	Datatype, Language string
}

// Quad is a statement of a dataset. Quads of the default graph have a Graph of Kind
// None.
type Quad struct {
	Subject, Predicate, Object, Graph Term
}

const (
	xsdString  = "http://www.w3.org/2001/XMLSchema#string"
	langString = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
)

var (
	// iriForm is an absolute IRI in the characters of N-Quads' IRIREF.
	iriForm      = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^` + "`" + `\\]*$`)
	languageForm = regexp.MustCompile(`^[a-zA-Z]+(-[a-zA-Z0-9]+)*$`)
)

// check refuses quads that are not RDF. A quad that passes is unambiguous in N-Quads.
func (q Quad) check() error {
	for _, position := range []struct {
		name  string
		term  Term
		kinds []Kind
	}{
		{"subject", q.Subject, []Kind{IRI, Blank}},
		{"predicate", q.Predicate, []Kind{IRI}},
		{"object", q.Object, []Kind{IRI, Blank, Literal}},
		{"graph", q.Graph, []Kind{IRI, Blank, None}},
	} {
		if err := position.term.check(position.kinds); err != nil {
			return fmt.Errorf("%s %.80q: %w", position.name, position.term.Value, err)
		}
	}
	return nil
}

func (t Term) check(kinds []Kind) error {
	allowed := false
	for _, kind := range kinds {
		allowed = allowed || t.Kind == kind
	}
	switch {
	case !allowed:
		return fmt.Errorf("this kind of term cannot stand here")
	case !utf8.ValidString(t.Value):
		return fmt.Errorf("not UTF-8")
	case t.Kind == IRI && !iriForm.MatchString(t.Value):
		return fmt.Errorf("not an absolute IRI")
	case t.Kind == Blank && t.Value == "":
		return fmt.Errorf("a blank node without an identifier")
	case t.Kind == Literal && t.Language != "" && (!languageForm.MatchString(t.Language) || t.Datatype != "" && t.Datatype != langString):
		return fmt.Errorf("not a language-tagged string")
	case t.Kind == Literal && t.Datatype != "" && !iriForm.MatchString(t.Datatype):
		return fmt.Errorf("datatype %.80q is not an absolute IRI", t.Datatype)
	}
	return nil
}

// write appends the quad to b as a line of canonical N-Quads (RDFC-1.0, appendix A), with blank
// nodes named by name.
func (q Quad) write(b *strings.Builder, name func(identifier string) string) {
	for _, t := range [...]Term{q.Subject, q.Predicate, q.Object, q.Graph} {
		switch t.Kind {
		case None:
			continue
		case IRI:
			b.WriteString("<" + t.Value + ">")
		case Blank:
			b.WriteString("_:" + name(t.Value))
		case Literal:
			t.writeLiteral(b)
		}
		b.WriteByte(' ')
	}
	b.WriteString(".\n")
}

func (t Term) writeLiteral(b *strings.Builder) {
	b.WriteByte('"')
	for _, r := range t.Value {
		switch {
		case r == '\b':
			b.WriteString(`\b`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\f':
			b.WriteString(`\f`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '"', r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ', r == 0x7f, r == 0xfffe, r == 0xffff:
			fmt.Fprintf(b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	switch {
	case t.Language != "":
		b.WriteString("@" + t.Language)
	case t.Datatype != "" && t.Datatype != xsdString:
		b.WriteString("^^<" + t.Datatype + ">")
	}
}
