package charts

import (
	"fmt"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// mostItems is the greatest number of items that one call in a template makes.
const mostItems = 10_000

// bounded are the functions of templates whose result can be of any size, with a limit: a consumer's
// parameter may be their argument.
var bounded = template.FuncMap{
	"until": func(count int) ([]int, error) {
		return limited(count, func() []int { return untilStep(0, count, 1) })
	},
	"untilStep": func(start, stop, step int) ([]int, error) {
		if step == 0 {
			return nil, nil
		}
		return limited((stop-start)/step, func() []int { return untilStep(start, stop, step) })
	},
	"seq": func(params ...int) (string, error) {
		for _, p := range params {
			if _, err := limited(p, func() string { return "" }); err != nil {
				return "", err
			}
		}
		return seq(params...), nil
	},
	"repeat": func(count int, text string) (string, error) {
		if count > 0 && len(text) > mostRendered/count {
			return "", fmt.Errorf("%d times %d bytes are more than %d", count, len(text), mostRendered)
		}
		return strings.Repeat(text, max(count, 0)), nil
	},
}

var (
	untilStep = sprig.FuncMap()["untilStep"].(func(start, stop, step int) []int)
	seq       = sprig.FuncMap()["seq"].(func(params ...int) string)
)

func limited[T any](size int, result func() T) (T, error) {
	if max(size, -size) > mostItems {
		var none T
		return none, fmt.Errorf("%d items are more than %d", max(size, -size), mostItems)
	}
	return result(), nil
}
