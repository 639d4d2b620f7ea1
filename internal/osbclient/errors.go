package osbclient

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// CodeLoop is Sluice's own error code for an order that has come through it already, or through too many brokers.
const CodeLoop = "LoopDetected"

// Error codes of OSB 2.17, "Service Broker Errors".
const (
	CodeConcurrency         = "ConcurrencyError"
	codeMaintenanceConflict = "MaintenanceInfoConflict"
	codeAsyncRequired       = "AsyncRequired"
	codeRequiresApp         = "RequiresApp"
)

// maxText is the greatest length of a broker's text, in characters.
const maxText = 400

// Error is a request that did not succeed: the broker's refusal, an answer that is not OSB, or no answer.
type Error struct {
	// Request in words, for instance "provision".
	Request string
	// Status of the answer; 0 means that there was none.
	Status int
	// Code is the broker's error code, or "".
	Code string
	// Description of the broker, printable; "" if it gave none.
	Description string
	// InstanceUsable and UpdateRepeatable of the broker, nil if it did not say.
	InstanceUsable, UpdateRepeatable *bool
	// RetryAfter is the time to wait before the next request, as the broker asks; zero if it does not.
	RetryAfter time.Duration
	// Malformed means that the answer is not OSB.
	Malformed bool
	// Err is the cause if there was no answer or it was malformed.
	Err error
}

func (e *Error) Error() string {
	said := fmt.Sprintf("%s: ", e.Request)
	switch {
	case e.Status == 0:
		return said + "no answer: " + Printable(e.Err.Error())
	case e.Malformed:
		return said + fmt.Sprintf("%s, with a body that is not OSB: %s", status(e.Status), Printable(e.Err.Error()))
	}
	said += status(e.Status)
	if e.Code != "" && e.Code != strings.ReplaceAll(http.StatusText(e.Status), " ", "") {
		said += " " + e.Code
	}
	if e.Description != "" {
		said += ": " + e.Description
	}
	return said
}

func (e *Error) Unwrap() error { return e.Err }

// Orphan reports whether the broker may have carried the request out all the same, so that what it creates
// has to be deleted (OSB 2.17, "Orphan Mitigation").
func (e *Error) Orphan() bool {
	switch {
	case e.Status == 0, e.Status >= http.StatusInternalServerError:
		return true
	case e.Status == http.StatusOK:
		return false
	}
	return e.Status < http.StatusMultipleChoices
}

// OfParameters reports whether the parameters may be the cause, by the table of OSB 2.17 ("Service Broker Errors"):
// a 400, or a 422 without one of OSB's codes or CodeLoop, which have causes of their own.
func (e *Error) OfParameters() bool {
	switch e.Status {
	case http.StatusBadRequest:
		return true
	case http.StatusUnprocessableEntity:
		return !slices.Contains([]string{CodeConcurrency, codeMaintenanceConflict, codeAsyncRequired, codeRequiresApp, CodeLoop}, e.Code)
	}
	return false
}

// Repeatable reports whether the same request may succeed when it is sent again, without anybody changing
// anything: there was no answer, or one that speaks of a moment.
func (e *Error) Repeatable() bool {
	switch e.Status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return e.Code == CodeConcurrency
}

// Unauthorized reports whether the broker does not accept Sluice's credentials.
func (e *Error) Unauthorized() bool {
	return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
}

// IsTransient reports whether the same request may succeed later without a change of it: there was no answer, or one that
// speaks of a moment, or of Sluice's credentials.
func IsTransient(err error) bool {
	answer := (*Error)(nil)
	return !errors.As(err, &answer) || answer.Repeatable() || answer.Unauthorized()
}

// AsksToWait reports whether the broker wants the same request later: because something else is under way with the instance
// or binding (OSB 2.17, "Blocking Operations"), or by Retry-After. Without that, pause is zero.
func AsksToWait(err error) (pause time.Duration, asks bool) {
	answer := (*Error)(nil)
	if !errors.As(err, &answer) || !answer.Repeatable() || answer.RetryAfter == 0 && answer.Code != CodeConcurrency {
		return 0, false
	}
	return answer.RetryAfter, true
}

// IsMaintenanceConflict reports whether the broker did nothing because its plan has another version than the request (OSB
// 2.17, "Maintenance Info Object").
func IsMaintenanceConflict(err error) bool {
	answer := (*Error)(nil)
	return errors.As(err, &answer) && answer.Code == codeMaintenanceConflict
}

func status(code int) string {
	if text := http.StatusText(code); text != "" {
		return fmt.Sprintf("%d %s", code, text)
	}
	return fmt.Sprint(code)
}

// Printable returns a broker's text on one line, without control characters, cut to 400 characters.
func Printable(text string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	return v1alpha1.Cut(strings.TrimSpace(clean), maxText)
}
