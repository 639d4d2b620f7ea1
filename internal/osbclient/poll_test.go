package osbclient

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

// TestPolled: an operation is over by the broker's word only.
func TestPolled(t *testing.T) {
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
			got, err := Polled(row.polled, row.err)
			if got != row.want || (err != nil) != row.fails || IsRefused(err) != row.forgets {
				t.Errorf("it is %+v, %v; want %+v", got, err, row.want)
			}
		})
	}
}
