package strictjson

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The limits that the zero value of Limits means.
const (
	DefaultBytes = 1 << 20
	DefaultDepth = 64
)

// Limits bounds what Decode accepts. The zero value allows any JSON value of
// 1 MiB and 64 levels and ignores unknown members, as OSB 2.17 asks of brokers.
type Limits struct {
	// Bytes is the longest document, in bytes; 0 means DefaultBytes.
	Bytes int64
	// Depth is how many objects and arrays may be nested; 0 means DefaultDepth.
	// {} has depth 1.
	Depth int
	// Object refuses a top-level value that is not an object.
	Object bool
	// KnownMembers refuses object members that the Go type has no field for.
	KnownMembers bool
	// Float64 refuses numbers that are too large or too small for a float64, wherever they are: the
	// hub cannot store them. It also refuses exponents beyond ±1000, with which a short number takes
	// long to compute with.
	Float64 bool
}

// Decode reads one JSON document from r, to the end, and stores it in the value
// that into points to. Members that are absent leave their fields as they were.
//
// A document that is refused gives an [*Error]; into may then have been written
// in part if the error is of kind Type or Unknown, and is untouched otherwise.
// An error of r is wrapped. At most Limits.Bytes+1 bytes are read.
func Decode(r io.Reader, limits Limits, into any) error {
	if v := reflect.ValueOf(into); v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("decode JSON into %T: not a pointer to a value", into)
	}
	if limits.Bytes == 0 {
		limits.Bytes = DefaultBytes
	}
	if limits.Depth == 0 {
		limits.Depth = DefaultDepth
	}
	document, err := io.ReadAll(io.LimitReader(r, limits.Bytes+1))
	if err != nil {
		return fmt.Errorf("read JSON: %w", err)
	}
	if int64(len(document)) > limits.Bytes {
		return &Error{Kind: TooLarge, Offset: limits.Bytes, Msg: fmt.Sprintf("longer than %d bytes", limits.Bytes)}
	}
	if err := check(document, limits); err != nil {
		return err
	}
	err = json.Unmarshal(document, into,
		json.RejectUnknownMembers(limits.KnownMembers),
		json.WithUnmarshalers(exactNumbers),
		// Both have just been checked.
		jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true),
	)
	if err != nil {
		return semanticError(err)
	}
	return nil
}

// check walks through the document once. Of a document with several faults it reports the
// first.
func check(document []byte, limits Limits) error {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(document))
	if limits.Object {
		if kind := decoder.PeekKind(); kind != 0 && kind != '{' {
			return &Error{Kind: Type, Msg: "want an object, got " + kindName(kind)}
		}
	}
	for {
		token, err := decoder.ReadToken()
		if err != nil {
			return syntaxError(err, len(document))
		}
		if limits.Float64 && token.Kind() == '0' {
			if wrong := float64Range(token.String()); wrong != "" {
				return &Error{Kind: Type, Path: pointer(decoder.StackPointer()), Offset: decoder.InputOffset(), Msg: wrong}
			}
		}
		switch depth := decoder.StackDepth(); {
		case depth > limits.Depth:
			return &Error{
				Kind: TooDeep, Path: pointer(decoder.StackPointer()), Offset: decoder.InputOffset(),
				Msg: fmt.Sprintf("nested more than %d levels", limits.Depth),
			}
		case depth == 0:
			return checkEnd(decoder)
		}
	}
}

// mostExponent is the greatest exponent, positive or negative, that Limits.Float64 allows.
const mostExponent = 1000

// float64Range returns the reason why Limits.Float64 refuses a number, or "".
func float64Range(number string) string {
	digits, exponent, isScientific := strings.Cut(strings.ToLower(number), "e")
	if isScientific {
		if e, err := strconv.Atoi(exponent); err != nil || e > mostExponent || e < -mostExponent {
			return "the number's exponent is out of range"
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
		return "the number is out of range"
	case value == 0 && strings.ContainsAny(digits, "123456789"):
		return "the number is too close to zero"
	}
	return ""
}

// checkEnd refuses anything but white space after the top-level value.
func checkEnd(decoder *jsontext.Decoder) error {
	end := decoder.InputOffset()
	if _, err := decoder.ReadToken(); errors.Is(err, io.EOF) && !isSyntactic(err) {
		return nil
	}
	return &Error{Kind: Trailing, Offset: end, Msg: "more data after the top-level value"}
}

// exactNumbers decodes a number into an interface as json.Number.
var exactNumbers = json.UnmarshalFromFunc(func(decoder *jsontext.Decoder, into *any) error {
	if decoder.PeekKind() != '0' {
		return errors.ErrUnsupported // as usual
	}
	number, err := decoder.ReadValue()
	if err != nil {
		return err
	}
	*into = stdjson.Number(number)
	return nil
})
