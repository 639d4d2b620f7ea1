package console

import (
	"net/url"
	"strconv"
	"strings"
)

// pageSize is how many rows of a list a page has, so that a page stays small however long the list is.
const pageSize = 50

// pager leads through a long list.
type pager struct {
	// From and To are the positions of the first and last row shown, from 1; All is the length of the list.
	From, To, All int
	// Previous and Next are links; empty if there are none.
	Previous, Next string
}

// paged returns the part of a list that the parameter "page" selects, from 1.
func paged[T any](c *call, all []T) ([]T, pager) {
	number, _ := strconv.Atoi(c.URL.Query().Get("page"))
	last := max(1, (len(all)+pageSize-1)/pageSize)
	number = max(1, min(number, last))
	from, to := (number-1)*pageSize, min(number*pageSize, len(all))
	link := func(n int) string {
		if n < 1 || n > last {
			return ""
		}
		q := c.URL.Query()
		q.Set("page", strconv.Itoa(n))
		return c.URL.Path + "?" + q.Encode()
	}
	return all[from:to], pager{From: from + 1, To: to, All: len(all), Previous: link(number - 1), Next: link(number + 1)}
}

// filter narrows a list, by parameters of the URL.
type filter struct {
	// Path of the page.
	Path string
	// values by name; those that do not narrow are absent.
	values url.Values
}

// filterOf reads the named parameters. A parameter that is given but empty selects what has no value.
func filterOf(c *call, names ...string) filter {
	f := filter{Path: c.URL.Path, values: url.Values{}}
	query := c.URL.Query()
	for _, name := range names {
		if given, found := query[name]; found && (given[0] != "" || name != "text") {
			f.values[name] = given[:1]
		}
	}
	return f
}

// is reports whether a value is selected.
func (f filter) is(name, value string) bool {
	return !f.values.Has(name) || f.values.Get(name) == value
}

// has reports whether one of the texts contains the text that is searched for, in any case.
func (f filter) has(texts ...string) bool {
	want := strings.ToLower(f.values.Get("text"))
	if want == "" {
		return true
	}
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), want) {
			return true
		}
	}
	return false
}

// Text returns the text that is searched for.
func (f filter) Text() string { return f.values.Get("text") }

// On reports whether something is narrowed.
func (f filter) On() bool { return len(f.values) > 0 }

// Value returns what a parameter selects.
func (f filter) Value(name string) string { return f.values.Get(name) }

// Selected reports whether a parameter selects this value.
func (f filter) Selected(name, value string) bool {
	return f.values.Has(name) && f.values.Get(name) == value
}

// Others are the parameters that narrow, except one.
func (f filter) Others(name string) map[string]string {
	others := map[string]string{}
	for n := range f.values {
		if n != name {
			others[n] = f.values.Get(n)
		}
	}
	return others
}

// With returns the link of the page with one parameter set, and Without the one with it taken away.
func (f filter) With(name, value string) string { return f.link(name, &value) }

func (f filter) Without(name string) string { return f.link(name, nil) }

func (f filter) link(name string, value *string) string {
	q := url.Values{}
	for n, v := range f.values {
		q[n] = v
	}
	q.Del(name)
	if value != nil {
		q.Set(name, *value)
	}
	if len(q) == 0 {
		return f.Path
	}
	return f.Path + "?" + q.Encode()
}
