package broker

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestAnOrderRemembersWhatItCameThrough: HTTP proxies do not count, and a chain may be as long as the schema allows.
func TestAnOrderRemembersWhatItCameThrough(t *testing.T) {
	f := newFixture(t)
	for id, row := range map[string]struct {
		via  []string // header lines
		want []string
	}{
		"direct":  {nil, nil},
		"proxied": {[]string{"1.1 proxy, HTTP/2 other"}, nil},
		"lines":   {[]string{"OSB/2.17 one, 1.1 proxy (Apache/1.1)", "OSB/2.17 two"}, []string{"one", "two"}},
		"long":    {[]string{strings.Repeat("OSB/2.17 x, ", v1alpha1.MaxSluices)}, slices.Repeat([]string{"x"}, v1alpha1.MaxSluices)},
	} {
		f.want(http.StatusAccepted, "PUT", instancePath(id), order(planSmall), func(r *http.Request) {
			for _, line := range row.via {
				r.Header.Add("Via", line)
			}
		})
		if got := f.instance("cf-eu", id).Spec.Via; !slices.Equal(got, row.want) {
			t.Errorf("%s: it came via %q, want %q", id, got, row.want)
		}
	}
}
