package osbclient

// End asks a broker to delete an instance or a binding or, if the broker has accepted that, how far it is. Succeeded means
// that nothing is left. A broker that asks to wait (AsksToWait) is in progress, with its answer as the description. token is
// that of the deletion under way, nil if there is none. End changes it, and the caller keeps it. It is nil again after a
// deletion that failed, or that the broker does not know: the next call asks for another one, and the broker says whether
// there is something to delete. The error is that of remove or poll.
func End(token **string, remove func() (Accepted, error), poll func(operation string) (Operation, error)) (Operation, error) {
	ended, err := step(token, remove, poll)
	if pause, asks := AsksToWait(err); asks {
		return Operation{State: InProgress, Description: err.Error(), RetryAfter: pause}, nil
	}
	return ended, err
}

func step(token **string, remove func() (Accepted, error), poll func(operation string) (Operation, error)) (Operation, error) {
	if *token != nil {
		polled, err := poll(**token)
		if err == nil && polled.State != InProgress || err != nil && !IsTransient(err) {
			*token = nil
		}
		return polled, err
	}
	accepted, err := remove()
	switch {
	case err != nil:
		return Operation{}, err
	case accepted.Done:
		return Operation{State: Succeeded}, nil
	}
	*token = &accepted.Operation
	return Operation{State: InProgress, RetryAfter: accepted.RetryAfter}, nil
}
