package tenant

import "testing"

func TestMissing(t *testing.T) {
	type object = map[string]any
	for _, test := range []struct {
		name       string
		want, have object
		difference string
	}{
		{"the same", object{"spec": object{"a": "1"}}, object{"spec": object{"a": "1"}}, ""},
		{"more than wanted", object{"spec": object{"a": "1"}}, object{"spec": object{"a": "1", "b": "2"}, "status": object{}}, ""},
		{"another value", object{"spec": object{"a": "1"}}, object{"spec": object{"a": "2"}}, ".spec.a is 2, not 1"},
		{"an absent field", object{"spec": object{"a": "1"}}, object{"spec": object{}}, ".spec.a is <nil>, not 1"},
		{"an absent object", object{"spec": object{"a": object{"b": "1"}}}, object{"spec": object{}}, ".spec.a is absent"},
		{"an empty object matches an absent one", object{"spec": object{"a": object{}}}, object{"spec": object{}}, ""},
		{"a longer list", object{"rules": []any{"a"}}, object{"rules": []any{"a", "b"}}, ".rules has 2 items, not 1"},
		{"another item", object{"rules": []any{object{"a": int64(1)}}}, object{"rules": []any{object{"a": int64(2)}}}, ".rules[0].a is 2, not 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := missing(test.want, test.have, ""); got != test.difference {
				t.Errorf("got %q, want %q", got, test.difference)
			}
		})
	}
}
