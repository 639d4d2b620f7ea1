package osbclient

import (
	"errors"
	"net/http"
)

// Poll asks a broker how far an operation is that it has accepted (OSB 2.17, "Polling Last Operation"). token is that of the
// operation. A broker that answers neither 200 nor 410, or nonsense, is asked again: the operation is in progress, with the
// answer as the description. The error is that of poll: the broker is away (IsTransient) or, by 4xx (IsRefused), does not
// know the operation. token is nil then, and the caller makes its request again.
func Poll(token **string, poll func(operation string) (Operation, error)) (Operation, error) {
	polled, err := poll(**token)
	answer := (*Error)(nil)
	switch {
	case IsTransient(err) || !errors.As(err, &answer):
		return polled, err
	case IsRefused(err):
		*token = nil
		return polled, err
	}
	return Operation{State: InProgress, Description: err.Error(), RetryAfter: answer.RetryAfter}, nil
}

// IsRefused reports whether the broker has answered, by 4xx, that nothing was done and a repetition is in vain.
func IsRefused(err error) bool {
	answer := (*Error)(nil)
	return errors.As(err, &answer) && answer.Status >= http.StatusBadRequest && answer.Status < http.StatusInternalServerError && !IsTransient(err)
}
