package workload

import (
	"fmt"
	"maps"
	"slices"
)

// Expand returns a JSON value in which the expressions of all strings are replaced by their values, over
// these variables. The error names the path below the given one.
func Expand(variables map[string]any, value any, path string) (any, error) {
	return (&expressions{variables: variables}).all(value, path)
}

// CheckExpressions returns an error if an expression in a JSON value cannot be compiled. It names the path
// below the given one.
func CheckExpressions(value any, path string) error {
	switch value := value.(type) {
	case string:
		segments, err := split(value)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, one := range segments {
			if one.source == "" {
				continue
			}
			if _, err := compile(one.source); err != nil {
				return fmt.Errorf("%s: ${%s}: %w", path, one.source, err)
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if err := CheckExpressions(value[name], path+"."+name); err != nil {
				return err
			}
		}
	case []any:
		for i := range value {
			if err := CheckExpressions(value[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	}
	return nil
}
