package did

import "fmt"

// NotListedError says that the keys of a DID are known and that the one asked for is
// not among those that it makes assertions with. Asking again does not help until
// the DID's owner changes them.
type NotListedError struct {
	ID string // DID URL of the key
}

func (e *NotListedError) Error() string {
	return e.ID + " is not an assertionMethod of its DID"
}

// UnreachableError says that a host did not give an answer that counts: the network,
// its certificate or the host itself is at fault. Asking later may help.
type UnreachableError struct {
	ID  string // what was asked for: a DID, a DID URL or an https URL
	Err error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s cannot be had now: %v", e.ID, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Temporary is true.
func (e *UnreachableError) Temporary() bool { return true }

// InvalidError says that an identifier, a document, a key or a chain breaks a rule,
// or may not be asked for. Asking again does not help until somebody changes it.
type InvalidError struct {
	ID  string // what was asked for: a DID, a DID URL or an https URL
	Err error
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s is refused: %v", e.ID, e.Err) }

// Unwrap returns the cause.
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(id, format string, args ...any) *InvalidError {
	return &InvalidError{ID: id, Err: fmt.Errorf(format, args...)}
}
