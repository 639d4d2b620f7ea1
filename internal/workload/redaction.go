package workload

import (
	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/seal"
)

// Redaction removes from a text the hidden parameters that an instance has, and is to have: another broker may repeat
// either of them.
func Redaction(i *v1alpha1.ServiceInstance, keys *seal.Keyset) func(string) string {
	return func(text string) string {
		return ParametersOf(i, keys).Redacted(text, i.Spec.Desired.Raw(), i.StateInForce().Raw())
	}
}

// BindingRedaction is Redaction, for the hidden parameters of a binding as well.
func BindingRedaction(b *v1alpha1.ServiceBinding, i *v1alpha1.ServiceInstance, keys *seal.Keyset) func(string) string {
	ofInstance := Redaction(i, keys)
	return func(text string) string {
		return BindingParametersOf(b, keys).Redacted(ofInstance(text), b.Spec.Raw())
	}
}

// redactedError is an error with another text.
type redactedError struct {
	text  string
	cause error
}

func (e *redactedError) Error() string { return e.text }

func (e *redactedError) Unwrap() error { return e.cause }

// RedactedError returns an error with a text that hide allows; err itself if it does. Its causes, which keep their texts,
// can still be told apart.
func RedactedError(err error, hide func(string) string) error {
	if err == nil {
		return nil
	}
	if text := hide(err.Error()); text != err.Error() {
		return &redactedError{text: text, cause: err}
	}
	return err
}
