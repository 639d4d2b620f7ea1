package osbclient

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// TestEnd: a deletion is asked for once and polled then, until nothing is left. One that failed, or that the broker does not
// know, is asked for again.
func TestEnd(t *testing.T) {
	token := func(s string) *string { return &s }
	for name, row := range map[string]struct {
		token    *string
		accepted Accepted
		polled   Operation
		err      error
		want     Operation
		fails    bool
		next     *string
	}{
		"there is none":              {accepted: Accepted{Done: true}, want: Operation{State: Succeeded}},
		"it is accepted":             {accepted: Accepted{Operation: "o", RetryAfter: time.Minute}, want: Operation{State: InProgress, RetryAfter: time.Minute}, next: token("o")},
		"without a token":            {want: Operation{State: InProgress}, next: token("")},
		"something else under way":   {err: &Error{Request: "unbind", Status: 422, Code: CodeConcurrency}, want: Operation{State: InProgress, Description: "unbind: 422 Unprocessable Entity ConcurrencyError"}},
		"asked to wait":              {err: &Error{Request: "unbind", Status: 503, RetryAfter: time.Minute}, want: Operation{State: InProgress, RetryAfter: time.Minute, Description: "unbind: 503 Service Unavailable"}},
		"no answer":                  {err: &Error{Request: "unbind", Err: http.ErrHandlerTimeout}, fails: true},
		"refused":                    {err: &Error{Request: "unbind", Status: 400}, fails: true},
		"in progress":                {token: token("o"), polled: Operation{State: InProgress, Description: "half"}, want: Operation{State: InProgress, Description: "half"}, next: token("o")},
		"done":                       {token: token("o"), polled: Operation{State: Succeeded}, want: Operation{State: Succeeded}},
		"failed":                     {token: token("o"), polled: Operation{State: Failed, Description: "no"}, want: Operation{State: Failed, Description: "no"}},
		"no answer to the poll":      {token: token("o"), err: &Error{Request: "poll", Status: 502}, fails: true, next: token("o")},
		"a poll that has to wait":    {token: token("o"), err: &Error{Request: "poll", Status: 429, RetryAfter: time.Hour}, want: Operation{State: InProgress, RetryAfter: time.Hour, Description: "poll: 429 Too Many Requests"}, next: token("o")},
		"the broker knows no such":   {token: token("o"), err: &Error{Request: "poll", Status: 404}, fails: true},
		"the broker's answer is odd": {token: token("o"), err: &Error{Request: "poll", Status: 200, Malformed: true, Err: errors.New("odd")}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			has, asked := row.token, ""
			got, err := End(&has, func() (Accepted, error) {
				asked = "to delete"
				return row.accepted, row.err
			}, func(operation string) (Operation, error) {
				asked = operation
				return row.polled, row.err
			})
			if got != row.want || (err != nil) != row.fails {
				t.Errorf("it is %+v, %v, want %+v", got, err, row.want)
			}
			if want := "to delete"; row.token == nil && asked != want || row.token != nil && asked != *row.token {
				t.Errorf("the broker is asked %q", asked)
			}
			if (has == nil) != (row.next == nil) || has != nil && *has != *row.next {
				t.Errorf("the token is %v, want %v", has, row.next)
			}
		})
	}
}
