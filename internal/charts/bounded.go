package charts

import (
	"fmt"
	"math"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// mostItems is the greatest number of items that one call in a template makes, and mostCounted that of all calls in one
// rendering.
const mostItems, mostCounted = 10_000, 100_000

// budget is the amount that the templates of one rendering may still make by functions whose result can be of any size. A
// consumer's parameter may be their argument. The engine collects the output of a template before it returns any, so that
// these functions are the place to bound it while it grows.
type budget struct {
	// items of lists, and bytes of repeated texts.
	items, bytes int
}

// functions returns those functions, with limits.
func (b *budget) functions() template.FuncMap {
	return template.FuncMap{
		"until": func(count int) ([]int, error) {
			if err := b.take(float64(count)); err != nil {
				return nil, err
			}
			return untilStep(0, count, 1), nil
		},
		"untilStep": func(start, stop, step int) ([]int, error) {
			if step == 0 {
				return nil, nil
			}
			if err := b.take((float64(stop) - float64(start)) / float64(step)); err != nil {
				return nil, err
			}
			return untilStep(start, stop, step), nil
		},
		"seq": func(params ...int) (string, error) {
			for _, p := range params {
				if err := b.take(float64(p)); err != nil {
					return "", err
				}
			}
			return seq(params...), nil
		},
		"repeat": func(count int, text string) (string, error) {
			if count > 0 && len(text) > mostRendered/count {
				return "", fmt.Errorf("%d times %d bytes are more than %d", count, len(text), mostRendered)
			}
			count = max(count, 0)
			if b.bytes -= count * len(text); b.bytes < 0 {
				return "", fmt.Errorf("its templates repeat texts to more than %d bytes", mostRendered)
			}
			return strings.Repeat(text, count), nil
		},
	}
}

var (
	untilStep = sprig.FuncMap()["untilStep"].(func(start, stop, step int) []int)
	seq       = sprig.FuncMap()["seq"].(func(params ...int) string)
)

// take counts the items of one call; a negative number counts as its absolute value.
func (b *budget) take(items float64) error {
	items = math.Abs(items)
	if items > mostItems {
		return fmt.Errorf("%.0f items are more than %d", items, mostItems)
	}
	if b.items -= int(items); b.items < 0 {
		return fmt.Errorf("its templates count more than %d items", mostCounted)
	}
	return nil
}
