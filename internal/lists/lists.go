// Package lists has what package slices lacks for short lists of names. No list is changed.
package lists

import (
	"fmt"
	"slices"
	"strings"
)

// Without returns the names that are in none of the others, in their order.
func Without(names []string, others ...[]string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.ContainsFunc(others, func(other []string) bool { return slices.Contains(other, name) })
	})
}

// Union returns the names of all lists, each once, in the order in which they first appear.
func Union(lists ...[]string) []string {
	var union []string
	for _, list := range lists {
		for _, name := range list {
			if !slices.Contains(union, name) {
				union = append(union, name)
			}
		}
	}
	return union
}

// Sorted returns the names of all lists, each once, sorted.
func Sorted(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Same reports whether two lists have the same names, in any order.
func Same(a, b []string) bool { return len(Without(a, b)) == 0 && len(Without(b, a)) == 0 }

// Some joins the first names, at most that many, and counts the others: "a, b and 3 more".
func Some(names []string, most int) string {
	shown := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}
