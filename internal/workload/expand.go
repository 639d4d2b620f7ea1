package workload

// Expand returns a JSON value in which the expressions of all strings are replaced by their values, over
// these variables. The error names the path below the given one.
func Expand(variables map[string]any, value any, path string) (any, error) {
	return (&expressions{variables: variables}).all(value, path)
}
