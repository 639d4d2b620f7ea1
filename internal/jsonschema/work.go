package jsonschema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sluice-dev/sluice/internal/strictjson"
)

const (
	// mostAtOnce is the greatest number of schemas that one part of a value is checked against. A schema counts each time
	// that it is reached, for instance by several references.
	mostAtOnce = 5_000
	// mostSchemas is the number of schemas of a document that are looked at, in a search for secrets and in one for how
	// much work a value can be. References can make more of few.
	mostSchemas = 100_000
	// deepest is the depth of the values that are checked.
	deepest = strictjson.DefaultDepth
)

// work finds schemas that would check a value for very long: references that fork multiply at each step, within one part of
// a value or from a value to those inside of it.
type work struct {
	// times are the numbers of schemas that are reached from one for the same part of a value, with itself. It is 0 while
	// it is being counted.
	times map[*jsonschema.Schema]int
	// numbers identify the schemas.
	numbers map[*jsonschema.Schema]int
	// seen are the sets of schemas of which the places inside have been found.
	seen map[string]bool
	left int
}

var errTooMany = fmt.Errorf("leads to more than %d schemas, with each counted as often as it is reached in another way", mostSchemas)

// place stands for the parts of values that are checked against the same schemas. A schema is there as often as it is
// reached.
type place []*jsonschema.Schema

// checkWork refuses a schema by which a value of the greatest depth would have a part that is checked against more than
// mostAtOnce schemas, or that leads back to itself for the same part. Patterns of properties count as if all of them could
// match the same name.
func checkWork(root *jsonschema.Schema) error {
	w := &work{times: map[*jsonschema.Schema]int{}, numbers: map[*jsonschema.Schema]int{}, seen: map[string]bool{}, left: mostSchemas}
	due := []place{{root}}
	for depth := 0; depth < deepest && len(due) > 0; depth++ {
		var inside []place
		for _, at := range due {
			more, err := w.look(at)
			if err != nil {
				return err
			}
			inside = append(inside, more...)
		}
		due = inside
	}
	return nil
}

// look returns the places inside of one, unless they were found before.
func (w *work) look(at place) (inside []place, err error) {
	all := 0
	for _, s := range at {
		n, err := w.count(s)
		if err != nil {
			return nil, err
		}
		if all += n; all > mostAtOnce {
			return nil, fmt.Errorf("checks one part of a value against more than %d schemas, with each counted as often as it is reached, for instance %s", mostAtOnce, named(s))
		}
	}
	if w.left -= all; w.left < 0 {
		return nil, errTooMany
	}
	var reached place
	for next := slices.Clone(at); len(next) > 0; {
		s := next[len(next)-1]
		if next = append(next[:len(next)-1], same(s)...); len(placesInside(place{s})) > 0 {
			reached = append(reached, s)
		}
	}
	if !w.isNew(reached) {
		return nil, nil
	}
	inside = placesInside(reached)
	for _, one := range inside {
		if w.left -= len(one); w.left < 0 {
			return nil, errTooMany
		}
	}
	return inside, nil
}

// count returns the number of schemas that are reached from one for the same part of a value, mostAtOnce + 1 for more.
func (w *work) count(s *jsonschema.Schema) (int, error) {
	if n, known := w.times[s]; known {
		if n == 0 {
			return 0, fmt.Errorf("%s leads back to itself without a step into the value", named(s))
		}
		return n, nil
	}
	if s.DynamicRef != nil && s.DynamicRef.Anchor != "" && s.DynamicRef.Ref.DynamicAnchor == s.DynamicRef.Anchor || s.RecursiveRef != nil && s.RecursiveRef.RecursiveAnchor {
		return 0, fmt.Errorf("%s has a reference of which the target depends on the way there: $dynamicRef to a $dynamicAnchor, or $recursiveRef to a $recursiveAnchor; use $ref", named(s))
	}
	w.times[s] = 0
	all := 1
	for _, other := range same(s) {
		n, err := w.count(other)
		if err != nil {
			return 0, err
		}
		all = min(all+n, mostAtOnce+1)
	}
	w.times[s] = all
	return all, nil
}

// isNew reports whether schemas have not been seen together before, and notes them. It sorts them.
func (w *work) isNew(at place) bool {
	for _, s := range at {
		if _, known := w.numbers[s]; !known {
			w.numbers[s] = len(w.numbers)
		}
	}
	slices.SortFunc(at, func(a, b *jsonschema.Schema) int { return cmp.Compare(w.numbers[a], w.numbers[b]) })
	var key strings.Builder
	for _, s := range at {
		fmt.Fprint(&key, w.numbers[s], " ")
	}
	if w.seen[key.String()] {
		return false
	}
	w.seen[key.String()] = true
	return true
}

// same returns the schemas that a schema applies to the same part of a value.
func same(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat(s.AllOf, s.AnyOf, s.OneOf, []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else, s.RecursiveRef}, slices.Collect(maps.Values(s.DependentSchemas)))
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	for _, dependency := range s.Dependencies {
		if one, ok := dependency.(*jsonschema.Schema); ok {
			all = append(all, one)
		}
	}
	return slices.DeleteFunc(all, func(one *jsonschema.Schema) bool { return one == nil })
}

// placesInside returns the places inside of one that is checked against schemas: a property of each name, one of any other
// name, the names, and the elements of a list.
func placesInside(schemas []*jsonschema.Schema) []place {
	properties, elements := map[string]place{}, []place{}
	var names, otherProperty, otherElement place
	for _, s := range schemas {
		for name, one := range s.Properties {
			properties[name] = append(properties[name], one)
		}
		for i, one := range slices.Concat(s.PrefixItems, listed(s.Items)) {
			if i == len(elements) {
				elements = append(elements, nil)
			}
			elements[i] = append(elements[i], one)
		}
	}
	for _, s := range schemas {
		names = with(names, s.PropertyNames)
		anyProperty, anyElement := with(slices.Collect(maps.Values(s.PatternProperties)), s.UnevaluatedProperties), with(nil, s.Contains, s.UnevaluatedItems)
		restProperty, restElement := with(nil, schemaIn(s.AdditionalProperties)), with(nil, schemaIn(s.Items), schemaIn(s.AdditionalItems), s.Items2020)
		otherProperty, otherElement = with(otherProperty, slices.Concat(anyProperty, restProperty)...), with(otherElement, slices.Concat(anyElement, restElement)...)
		for name := range properties {
			if properties[name] = append(properties[name], anyProperty...); s.Properties[name] == nil {
				properties[name] = append(properties[name], restProperty...)
			}
		}
		for i := range elements {
			if elements[i] = append(elements[i], anyElement...); i >= len(s.PrefixItems)+len(listed(s.Items)) {
				elements[i] = append(elements[i], restElement...)
			}
		}
	}
	all := slices.Concat(slices.Collect(maps.Values(properties)), elements, []place{names, otherProperty, otherElement})
	return slices.DeleteFunc(all, func(one place) bool { return len(one) == 0 })
}

func listed(items any) []*jsonschema.Schema {
	all, _ := items.([]*jsonschema.Schema)
	return all
}

func schemaIn(value any) *jsonschema.Schema {
	one, _ := value.(*jsonschema.Schema)
	return one
}

// with appends those schemas that there are.
func with(to place, more ...*jsonschema.Schema) place {
	for _, one := range more {
		if one != nil {
			to = append(to, one)
		}
	}
	return to
}

// named returns a schema's place in its document.
func named(s *jsonschema.Schema) string {
	_, fragment, _ := strings.Cut(s.Location, "#")
	return "#" + fragment
}
