package shape

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Rules of violations. Those of SHACL have their SHACL names.
const (
	RuleType      = "type"     // no type, a type that Check does not know, or one of another namespace
	RuleID        = "id"       // an identifier that is not an absolute IRI, or a node described twice
	RuleKeyword   = "keyword"  // a keyword of JSON-LD that changes what a document means
	RuleDepth     = "depth"    // too deeply nested nodes
	RuleClosed    = "closed"   // an attribute that the type does not have
	RuleMinCount  = "minCount" // an attribute is missing
	RuleMaxCount  = "maxCount" // an attribute occurs too often
	RuleNodeKind  = "nodeKind" // a literal instead of a node, or the reverse
	RuleClass     = "class"    // a node of another class
	RuleDatatype  = "datatype" // a literal of another datatype, or malformed
	RuleIn        = "in"       // a value that is not in the list
	RulePattern   = "pattern"  // a value of another form
	RuleRange     = "range"    // a number out of bounds
	maxViolations = 100
	maxShown      = 80
)

// Violation is one rule that a subject breaks.
type Violation struct {
	// Path is a JSON pointer (RFC 6901) within the subject, to the value or, for RuleMinCount,
	// to its missing place. Long names are cut.
	Path string
	// Rule is one of the constants above.
	Rule string
	// Value is the actual value as JSON, cut after 80 bytes. Empty if there is none.
	Value string
}

func (v Violation) String() string {
	path := v.Path
	if path == "" {
		path = "/"
	}
	if v.Value == "" {
		return fmt.Sprintf("%s: %s", path, v.Rule)
	}
	return fmt.Sprintf("%s: %s: %s", path, v.Rule, v.Value)
}

// Error returns an error with the first of the violations of a credentialSubject; nil if there are none.
func Error(violations []Violation) error {
	const most = 5
	if len(violations) == 0 {
		return nil
	}
	var lines []string
	for _, violation := range violations[:min(most, len(violations))] {
		lines = append(lines, "/credentialSubject"+violation.String())
	}
	if more := len(violations) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(lines, "; "))
}

// show returns the form of a value in a Violation. Nodes and arrays are only named as such,
// because they can be large.
func show(value any) string {
	switch value.(type) {
	case map[string]any:
		return "{…}"
	case []any:
		return "[…]"
	}
	if s, ok := value.(string); ok {
		value = cut(s) // cut before encoding, which would take long for a large value
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%T", value)
	}
	return cut(string(raw))
}

func cut(s string) string {
	if len(s) <= maxShown {
		return s
	}
	end := maxShown
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// at returns the pointer to a member.
func at(path, member string) string { return path + "/" + pointerEscapes.Replace(cut(member)) }

func atIndex(path string, i int) string { return fmt.Sprintf("%s/%d", path, i) }
