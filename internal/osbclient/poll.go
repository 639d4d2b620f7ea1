package osbclient

import (
	"errors"
	"net/http"
)

// Polled judges the answer to a poll of an operation that a broker has accepted (OSB 2.17, "Polling Last Operation"). A broker
// that answers neither 200 nor 410, or nonsense, is asked again: the operation is in progress, with the answer as the
// description. The error is that of the poll: the broker is away (IsTransient) or does not know the operation (IsRefused), so
// that the caller makes its request again.
func Polled(polled Operation, err error) (Operation, error) {
	answer := (*Error)(nil)
	if IsTransient(err) || IsRefused(err) || !errors.As(err, &answer) {
		return polled, err
	}
	return Operation{State: InProgress, Description: err.Error(), RetryAfter: answer.RetryAfter}, nil
}

// IsRefused reports whether the broker has answered, by 4xx, that nothing was done and a repetition is in vain.
func IsRefused(err error) bool {
	answer := (*Error)(nil)
	return errors.As(err, &answer) && answer.Status >= http.StatusBadRequest && answer.Status < http.StatusInternalServerError && !IsTransient(err)
}
