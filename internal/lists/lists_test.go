package lists

import (
	"strings"
	"testing"
)

func TestSome(t *testing.T) {
	for names, want := range map[string]string{"": "", "a": "a", "a b c d e": "a, b, c, d, e", "a b c d e f": "a, b, c, d, e and 1 more", "a b c d e f g": "a, b, c, d, e and 2 more"} {
		if got := Some(strings.Fields(names), 5); got != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}
