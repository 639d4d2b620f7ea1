package strictjson

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Kind is the rule that a document breaks.
type Kind string

// The kinds of errors.
const (
	TooLarge  Kind = "too large"           // longer than Limits.Bytes
	TooDeep   Kind = "too deep"            // nested beyond Limits.Depth
	Duplicate Kind = "duplicate member"    // a name occurs twice in one object
	Trailing  Kind = "trailing data"       // something follows the top-level value
	Syntax    Kind = "malformed JSON"      // not JSON, or not UTF-8
	Type      Kind = "wrong type of value" // JSON, but not what the Go type or Limits.Object wants
	Unknown   Kind = "unknown member"      // refused by Limits.KnownMembers
)

// maxPath is the longest path in an error, in bytes: member names are the
// sender's, and errors go to logs.
const maxPath = 256

// Error is a fault of a document. It holds member names of the document but never its values.
type Error struct {
	Kind Kind
	// Path is the JSON Pointer (RFC 6901) of the fault; empty means the top-level value, or a
	// fault without a path.
	Path string
	// Offset is the position of the fault, in bytes from the start.
	Offset int64
	// Msg completes "the value at Path is at fault: …".
	Msg string
}

// Error returns, for example: wrong type of value at "/parameters/size": want a number, got a
// string.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Kind))
	switch {
	case e.Path != "":
		b.WriteString(" at " + strconv.Quote(e.Path))
	case e.Kind == Syntax, e.Kind == Trailing:
		fmt.Fprintf(&b, " at byte %d", e.Offset)
	}
	b.WriteString(": " + e.Msg)
	return b.String()
}

func isSyntactic(err error) bool {
	var syntactic *jsontext.SyntacticError
	return errors.As(err, &syntactic)
}

// syntaxError translates an error of the scanner.
func syntaxError(err error, length int) *Error {
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) { // only white space
		return &Error{Kind: Syntax, Offset: int64(length), Msg: "the document is empty"}
	}
	e := &Error{Kind: Syntax, Path: pointer(syntactic.JSONPointer), Offset: syntactic.ByteOffset, Msg: "not valid JSON"}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		e.Kind, e.Msg = Duplicate, "the name occurs twice in its object"
	case errors.Is(err, jsontext.ErrNonStringName):
		e.Msg = "a member name is not a string"
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Msg = "the document ends too early"
	case syntactic.Err != nil && strings.Contains(syntactic.Err.Error(), "UTF-8"):
		e.Msg = "not valid UTF-8"
	}
	return e
}

// semanticError translates an error of decoding a well-formed document.
func semanticError(err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return fmt.Errorf("decode JSON: %w", err)
	}
	e := &Error{Kind: Type, Path: pointer(semantic.JSONPointer), Offset: semantic.ByteOffset}
	switch want := typeName(semantic.GoType); {
	case errors.Is(err, json.ErrUnknownName):
		e.Kind, e.Msg = Unknown, "no such member is known here"
	case errors.Is(err, strconv.ErrRange):
		e.Msg = "the number is out of range"
	case want == "" || want == kindName(semantic.JSONKind):
		// Right kind, wrong content. The cause is left out: it often quotes the value.
		e.Msg = "the value is not valid"
	case semantic.JSONKind == 0:
		e.Msg = "want " + want
	default:
		e.Msg = "want " + want + ", got " + kindName(semantic.JSONKind)
	}
	return e
}

// pointer bounds the length of a path.
func pointer(p jsontext.Pointer) string {
	if len(p) <= maxPath {
		return string(p)
	}
	return strings.ToValidUTF8(string(p[:maxPath]), "") + "…"
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{', '}':
		return "an object"
	case '[', ']':
		return "an array"
	default:
		return "nothing"
	}
}

// typeName returns the JSON name for values of a Go type; empty if that depends on the value.
func typeName(t reflect.Type) string {
	if t == nil {
		return ""
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string"
		}
		return "an array"
	default:
		return ""
	}
}
