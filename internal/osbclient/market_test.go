package osbclient

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestMarketPlans: the credentials are exchanged for a token, which is renewed when it is refused; pages are read until
// all plans are found; and what no market says is refused or left out.
func TestMarketPlans(t *testing.T) {
	row := func(id, more string) string {
		return `{"id": "` + id + `", "regions": ["eu", "` + strings.Repeat("x", 64) + `"], "availability": {"known": true, "orders": 3, "clusters": 2}` + more + `}`
	}
	pages, tokens, asked := map[string]string{}, 0, 0
	valid := ""
	c := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/market/v1/tokens":
			if user, password, _ := r.BasicAuth(); user != first.Username || password != first.Password {
				t.Errorf("the token is asked for by %q", user)
			}
			tokens++
			valid = fmt.Sprint("token-", tokens)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"token": %q, "token_type": "Bearer", "expires_at": %q}`, valid, time.Now().Add(time.Hour).Format(time.RFC3339))
		case r.Header.Get("Authorization") != "Bearer "+valid:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			asked++
			fmt.Fprint(w, pages[r.URL.Query().Get("continue")])
		}
	}))
	read := func(ids ...string) (map[string]string, error) {
		wanted := map[string]bool{}
		for _, id := range ids {
			wanted[id] = true
		}
		plans, err := c.MarketPlans(t.Context(), wanted)
		said := map[string]string{}
		for id, p := range plans {
			said[id] = fmt.Sprint(p.Regions, p.Clusters)
			if p.Orders != nil {
				said[id] += fmt.Sprint(" ", *p.Orders)
			}
			if p.Price != nil {
				said[id] += " " + p.Price.PerMonth.String() + " " + p.Price.Currency
			}
			said[id] += p.Reason
		}
		return said, err
	}
	pages[""] = `{"plans": [` + row("a", `, "price": {"amount": "12.5", "currency": "EUR"}`) + `,` + row("x", "") + `], "continue": "2"}`
	pages["2"] = `{"plans": [{"id": "b", "availability": {"known": false, "orders": -1}}, ` + row("c", `, "price": {"amount": "1e9", "currency": "EUR"}`) + `]}`
	for _, step := range []struct {
		ids           []string
		tokens, asked int
		want          map[string]string
	}{
		{[]string{"a"}, 1, 1, map[string]string{"a": "[eu] 2 3 12500m EUR"}},
		{[]string{"b", "c", "none"}, 1, 2, map[string]string{"b": "[] 0", "c": "[eu] 2 3"}},
	} {
		asked = 0
		if got, err := read(step.ids...); err != nil || !reflect.DeepEqual(got, step.want) || tokens != step.tokens || asked != step.asked {
			t.Errorf("%v: %v, %v with %d tokens and %d requests", step.ids, got, err, tokens, asked)
		}
	}
	valid = "another" // the key was changed
	pages[""] = `{"plans": [{"id": "a", "availability": {"known": true, "orders": -5, "clusters": -1, "reason": "no\u0007 room"}}]}`
	if got, err := read("a"); err != nil || got["a"] != "[] 0 0no room" || tokens != 2 {
		t.Errorf("%v, %v with %d tokens", got, err, tokens)
	}
	for _, page := range []string{`[]`, `{"plans": [{"id": 1}]}`, `{"plans": [{"availability": {"orders": 1.5}}]}`, strings.Repeat(`[`, 200), `{"plans": "` + strings.Repeat("x", maxMarketPage) + `"}`} {
		pages[""] = page
		_, err := read("a")
		if refused := (*Error)(nil); !errors.As(err, &refused) || !refused.Malformed {
			t.Errorf("%.20s: %v", page, err)
		}
	}
	asked, pages["2"] = 0, `{"continue": "2"}`
	pages[""] = pages["2"]
	if _, err := read("a"); err != nil || asked != maxMarketPages {
		t.Errorf("a market without an end is asked %d times: %v", asked, err)
	}
}
