package workload

import "fmt"

// Expand returns a JSON value in which the expressions of all strings are replaced by their values, over
// these variables. The error names the path below the given one.
func Expand(variables map[string]any, value any, path string) (any, error) {
	return (&expressions{variables: variables}).all(value, path)
}

// CheckExpressions returns an error if an expression in a JSON value cannot be compiled. It names the path
// below the given one.
func CheckExpressions(value any, path string) error {
	_, err := eachString(value, path, func(text string) (any, error) {
		segments, err := split(text)
		if err != nil {
			return nil, err
		}
		for _, one := range segments {
			if one.source == "" {
				continue
			}
			if _, err := compile(one.source); err != nil {
				return nil, fmt.Errorf("${%s}: %w", one.source, err)
			}
		}
		return text, nil
	})
	return err
}
