package seal

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

// redaction is the output of a Redacted in every format.
const redaction = "[redacted]"

// Redacted holds content that no formatting shows: not with any verb of package
// fmt, not in JSON, YAML or XML, not in slog, not as a field of another struct,
// exported or not. Only [Redacted.Reveal] does. The zero value is empty.
type Redacted struct {
	// fmt cannot call methods on unexported fields of other structs and prints
	// what it finds there. Of a pointer to a string that is the address; pointers
	// to slices and structs it follows, for some verbs.
	content *string
}

// Redact hides a copy of content.
func Redact(content []byte) Redacted {
	hidden := string(content)
	return Redacted{&hidden}
}

// Reveal returns a copy of the content; nil for the zero value.
func (r Redacted) Reveal() []byte {
	if r.content == nil {
		return nil
	}
	return []byte(*r.content)
}

// Equal compares in a time that depends only on the lengths.
func (r Redacted) Equal(other Redacted) bool {
	return subtle.ConstantTimeCompare(r.Reveal(), other.Reveal()) == 1
}

// Format implements fmt.Formatter, for all verbs.
func (r Redacted) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(redaction)) }

// String implements fmt.Stringer.
func (r Redacted) String() string { return redaction }

// GoString implements fmt.GoStringer.
func (r Redacted) GoString() string { return redaction }

// MarshalText implements encoding.TextMarshaler, which JSON, YAML and XML use.
func (r Redacted) MarshalText() ([]byte, error) { return []byte(redaction), nil }

// LogValue implements slog.LogValuer.
func (r Redacted) LogValue() slog.Value { return slog.StringValue(redaction) }
