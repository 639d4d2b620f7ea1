package did

import "fmt"

// NotListedError means that the keys of a DID are known, and that the requested key is not
// among those that it lists for assertions. A retry does not help until the DID's owner changes
// the list.
type NotListedError struct {
	ID string // DID URL of the key
}

func (e *NotListedError) Error() string {
	return e.ID + " is not an assertionMethod of its DID"
}

// UnreachableError means that a host gave no usable answer: the network, its certificate or the
// host itself is at fault. A later retry may help.
type UnreachableError struct {
	ID  string // the requested DID, DID URL or https URL
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s cannot be had now: %v", e.ID, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Temporary returns true.
func (e *UnreachableError) Temporary() bool { return true }

// InvalidError means that an identifier, a document, a key or a chain breaks a rule, or that
// fetching it is not allowed. A retry does not help until somebody changes it.
type InvalidError struct {
	ID  string // the requested DID, DID URL or https URL
	Err error
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s is refused: %v", e.ID, e.Err) }

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(id, format string, args ...any) *InvalidError {
	return &InvalidError{ID: id, Err: fmt.Errorf(format, args...)}
}
