package shape

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Rules that a Violation may name. Those of SHACL have the names they have there.
const (
	RuleType      = "type"     // no type, one that Check does not know, or of another namespace
	RuleID        = "id"       // an identifier that is no absolute IRI, or a node described twice
	RuleKeyword   = "keyword"  // a keyword of JSON-LD that changes what a document means
	RuleDepth     = "depth"    // nodes within nodes, too many
	RuleClosed    = "closed"   // an attribute that the type does not have
	RuleMinCount  = "minCount" // an attribute that is missing
	RuleMaxCount  = "maxCount" // an attribute that occurs too often
	RuleNodeKind  = "nodeKind" // a literal for a node, or the reverse
	RuleClass     = "class"    // a node of another class
	RuleDatatype  = "datatype" // a literal of another datatype, or malformed
	RuleIn        = "in"       // a value that is not in the list
	RulePattern   = "pattern"  // a value of another form
	RuleRange     = "range"    // a number out of bounds
	maxViolations = 100
	maxShown      = 80
)

// Violation is one rule that a subject does not follow.
type Violation struct {
	// Path is a JSON pointer (RFC 6901) within the subject, to the value or, for
	// RuleMinCount, to where it would be. Long names are cut.
	Path string
	// Rule is one of the constants above.
	Rule string
	// Value is what is there instead, as JSON, cut after 80 bytes. Empty: nothing is.
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

// show is how a value looks in a Violation. Of nodes and arrays it says that they are
// one, as they can be large.
func show(value any) string {
	switch value.(type) {
	case map[string]any:
		return "{…}"
	case []any:
		return "[…]"
	}
	if s, ok := value.(string); ok {
		value = cut(s) // before it is encoded: what is cut need not be
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

// at is the pointer to a member.
func at(path, member string) string { return path + "/" + pointerEscapes.Replace(cut(member)) }

func atIndex(path string, i int) string { return fmt.Sprintf("%s/%d", path, i) }
