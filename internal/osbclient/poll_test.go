package osbclient

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// TestPoll: an operation is over by the broker's word only.
func TestPoll(t *testing.T) {
	for name, row := range map[string]struct {
		polled         Operation
		err            error
		want           Operation
		fails, forgets bool
	}{
		"in progress":           {polled: Operation{State: InProgress, Description: "half"}, want: Operation{State: InProgress, Description: "half"}},
		"done":                  {polled: Operation{State: Succeeded}, want: Operation{State: Succeeded}},
		"failed":                {polled: Operation{State: Failed, Description: "no"}, want: Operation{State: Failed, Description: "no"}},
		"the broker fails":      {err: &Error{Request: "poll", Status: 500, RetryAfter: time.Minute}, want: Operation{State: InProgress, Description: "poll: 500 Internal Server Error", RetryAfter: time.Minute}},
		"its answer is odd":     {err: &Error{Request: "poll", Status: 204}, want: Operation{State: InProgress, Description: "poll: 204 No Content"}},
		"no answer":             {err: &Error{Request: "poll", Err: http.ErrHandlerTimeout}, fails: true},
		"no connection":         {err: errors.New("no route to host"), fails: true},
		"it is asked too often": {err: &Error{Request: "poll", Status: 429}, fails: true},
		"it knows no such":      {err: &Error{Request: "poll", Status: 404}, fails: true, forgets: true},
	} {
		t.Run(name, func(t *testing.T) {
			token := new(string)
			*token = "o"
			got, err := Poll(&token, func(operation string) (Operation, error) {
				if operation != "o" {
					t.Errorf("the broker is asked for %q", operation)
				}
				return row.polled, row.err
			})
			if got != row.want || (err != nil) != row.fails || (token == nil) != row.forgets {
				t.Errorf("it is %+v, %v, and the token %v; want %+v", got, err, token, row.want)
			}
		})
	}
}
