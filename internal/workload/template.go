package workload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// mostCost limits the work of one expression, in CEL's own units: well below a millisecond.
	mostCost = 100_000
	// mostText is the greatest length of an expanded string, in bytes.
	mostText = 128 << 10
)

// The variables of expressions, as v1alpha1.WorkloadPlan describes them.
const (
	varParameters = "parameters"
	varSecrets    = "secrets"
	varComponents = "components"
	varInstance   = "instance"
	varCluster    = "cluster"
	varBinding    = "binding"
	varKubernetes = "kubernetes"
	varBackup     = "backup"
	varTarget     = "target"
	varPlan       = "plan"
)

var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Lists(), ext.Math(), ext.Encoders(),
	}
	for _, name := range []string{varParameters, varSecrets, varComponents, varInstance, varCluster, varBinding, varKubernetes, varBackup, varTarget, varPlan} {
		options = append(options, cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)))
	}
	return cel.NewEnv(options...)
})

// segment is a part of a string: a literal, or an expression.
type segment struct {
	literal string
	source  string
}

// split divides a string into literals and expressions: ${…} is an expression, $${ a literal ${.
func split(s string) ([]segment, error) {
	var out []segment
	var literal strings.Builder
	for s != "" {
		at := strings.Index(s, "${")
		if at < 0 {
			literal.WriteString(s)
			break
		}
		if at > 0 && s[at-1] == '$' {
			literal.WriteString(s[:at-1] + "${")
			s = s[at+2:]
			continue
		}
		literal.WriteString(s[:at])
		length := expressionLength(s[at+2:])
		if length < 0 {
			return nil, errors.New("an expression that starts with ${ has no }; write $${ for a literal ${")
		}
		if literal.Len() > 0 {
			out = append(out, segment{literal: literal.String()})
			literal.Reset()
		}
		out = append(out, segment{source: s[at+2 : at+2+length]})
		s = s[at+2+length+1:]
	}
	if literal.Len() > 0 {
		out = append(out, segment{literal: literal.String()})
	}
	return out, nil
}

// expressionLength returns the number of bytes before the brace that ends an expression, or -1.
// Braces in CEL's strings and maps do not end it.
func expressionLength(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// programs are the expressions that were compiled last, by their source.
var programs = sync.OnceValues(func() (*lru.Cache[string, cel.Program], error) {
	return lru.New[string, cel.Program](4096)
})

// expressions expands strings over one set of variables.
type expressions struct {
	variables map[string]any
	// hide are values that no error message may contain.
	hide []string
}

// value expands a string. If it is one expression, the result has the type of its value; otherwise it
// is a string.
func (e *expressions) value(s string) (any, error) {
	if !strings.Contains(s, "${") {
		return s, nil
	}
	segments, err := split(s)
	if err != nil {
		return nil, err
	}
	if len(segments) == 1 && segments[0].source != "" {
		return e.evaluate(segments[0].source)
	}
	var text strings.Builder
	for _, part := range segments {
		if part.source == "" {
			text.WriteString(part.literal)
			continue
		}
		value, err := e.evaluate(part.source)
		if err != nil {
			return nil, err
		}
		piece, err := textOf(value)
		if err != nil {
			return nil, fmt.Errorf("${%s}: %w", part.source, err)
		}
		text.WriteString(piece)
		if text.Len() > mostText {
			return nil, fmt.Errorf("is longer than %d KiB", mostText>>10)
		}
	}
	return text.String(), nil
}

// text expands a string to a string.
func (e *expressions) text(s string) (string, error) {
	value, err := e.value(s)
	if err != nil {
		return "", err
	}
	return textOf(value)
}

// all expands the strings in a JSON value; keys of objects stay as they are. The error names the
// path below the given one.
func (e *expressions) all(value any, path string) (any, error) {
	return eachString(value, path, e.value)
}

// eachString returns a JSON value in which each string is replaced; keys of objects stay as they are. The error
// names the path of the string, below the given one.
func eachString(value any, path string, replace func(string) (any, error)) (any, error) {
	switch value := value.(type) {
	case string:
		replaced, err := replace(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return replaced, nil
	case map[string]any:
		out := make(map[string]any, len(value))
		for _, name := range slices.Sorted(maps.Keys(value)) { // so that of several errors it is always the same one
			replaced, err := eachString(value[name], path+"."+name, replace)
			if err != nil {
				return nil, err
			}
			out[name] = replaced
		}
		return out, nil
	case []any:
		out := make([]any, len(value))
		for i, one := range value {
			replaced, err := eachString(one, fmt.Sprintf("%s[%d]", path, i), replace)
			if err != nil {
				return nil, err
			}
			out[i] = replaced
		}
		return out, nil
	default:
		return value, nil
	}
}

func (e *expressions) evaluate(source string) (any, error) {
	program, err := compile(source)
	if err != nil {
		return nil, fmt.Errorf("${%s}: %w", source, err)
	}
	result, _, err := program.Eval(e.variables)
	if err != nil {
		return nil, fmt.Errorf("${%s}: %s", source, e.redacted(err.Error()))
	}
	value, err := native(result)
	if err != nil {
		return nil, fmt.Errorf("${%s}: %w", source, err)
	}
	return value, nil
}

// redacted removes secrets from a message: CEL quotes the values that it cannot convert. Of one that contains another nothing
// is left.
func (e *expressions) redacted(message string) string {
	for _, secret := range slices.SortedFunc(slices.Values(e.hide), func(a, b string) int { return len(b) - len(a) }) {
		if secret == "" {
			continue
		}
		message = strings.ReplaceAll(message, secret, "***")
	}
	return message
}

func compile(source string) (cel.Program, error) {
	known, err := programs()
	if err != nil {
		return nil, fmt.Errorf("make the cache of expressions: %w", err)
	}
	if program, ok := known.Get(source); ok {
		return program, nil
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	ast, issues := env.Compile(source)
	if errs := issues.Errors(); len(errs) > 0 {
		return nil, fmt.Errorf("column %d: %s; write $${ for a literal ${", errs[0].Location.Column()+1, errs[0].Message)
	}
	program, err := env.Program(ast, cel.CostLimit(mostCost))
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	known.Add(source, program)
	return program, nil
}

// native converts a value of CEL to one of JSON, as Kubernetes decodes it: whole numbers are int64.
func native(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.String:
		return string(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		return int64(v), nil
	case types.Double:
		return float64(v), nil
	case types.Bytes:
		return nil, errors.New("is of type bytes; use base64.encode or string")
	case types.Null:
		return nil, nil
	case *types.Optional:
		if !v.HasValue() {
			return nil, errors.New("has no value; use orValue")
		}
		return native(v.GetValue())
	case traits.Mapper:
		out := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			name, ok := key.Value().(string)
			if !ok {
				return nil, errors.New("is a map with keys that are not strings")
			}
			value, err := native(v.Get(key))
			if err != nil {
				return nil, err
			}
			out[name] = value
		}
		return out, nil
	case traits.Lister:
		out := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			value, err := native(it.Next())
			if err != nil {
				return nil, err
			}
			out = append(out, value)
		}
		return out, nil
	default:
		return nil, fmt.Errorf("is of type %s", v.Type().TypeName())
	}
}

// textOf writes a scalar as text.
func textOf(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case int64:
		return strconv.FormatInt(value, 10), nil
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), nil
	case nil:
		return "", errors.New("is null")
	default:
		return "", errors.New("is a list or an object, which cannot be part of a text")
	}
}
