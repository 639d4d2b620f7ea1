package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sluice-dev/sluice/catalog"
	"github.com/sluice-dev/sluice/internal/seal"
	"github.com/sluice-dev/sluice/internal/strictjson"
)

// Error codes: those of OSB 2.17, "Service Broker Errors", on which clients act, and
// Sluice's own, which clients only show.
const (
	codeAsyncRequired           = "AsyncRequired"
	codeConcurrencyError        = "ConcurrencyError"
	codeRequiresApp             = "RequiresApp"
	codeMaintenanceInfoConflict = "MaintenanceInfoConflict"

	codeBadRequest             = "BadRequest"
	codeUnauthorized           = "Unauthorized"
	codeNotFound               = "NotFound"
	codeMethodNotAllowed       = "MethodNotAllowed"
	codeConflict               = "Conflict"
	codeLimitReached           = "LimitReached"
	codeTooManyFailures        = "TooManyFailures"
	codeUnsupportedVersion     = "UnsupportedVersion"
	codeTooLarge               = "RequestTooLarge"
	codePlanChangeNotSupported = "PlanChangeNotSupported"
	codeParametersConflict     = "ParametersConflict"
	codeNotProvisioned         = "NotProvisioned"
	codeInUse                  = "InUse"
	codeOperationFailed        = "OperationFailed"
	codeLoopDetected           = "LoopDetected"
	codeUnavailable            = "Unavailable"
	codeInternalError          = "InternalError"
)

// Error is an OSB error response. End users see its description.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code is the field error of the body.
	Code string
	// Description for the end user. If empty, the body is the empty object of 410.
	Description string
	// InstanceUsable reports, after a failed update or deprovision, whether the instance still
	// works.
	InstanceUsable *bool
	// UpdateRepeatable reports, after a failed update, whether it may be tried again.
	UpdateRepeatable *bool
	// Allow lists the methods of the URL, for 405 (RFC 9110, section 15.5.6).
	Allow string
	// RetryAfter asks the platform to wait; zero sends no such header.
	RetryAfter time.Duration
	// Err is the cause; it is only logged.
	Err error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Description, e.Err)
	}
	return e.Code + ": " + e.Description
}

func (e *Error) Unwrap() error { return e.Err }

// The Go client of Service Catalog compares the first three descriptions word by word.
var (
	errAsyncRequired = &Error{Status: http.StatusUnprocessableEntity, Code: codeAsyncRequired,
		Description: "This service plan requires client support for asynchronous service operations."}
	errConcurrency = &Error{Status: http.StatusUnprocessableEntity, Code: codeConcurrencyError,
		Description: "The Service Broker does not support concurrent requests that mutate the same resource."}
	errRequiresApp = &Error{Status: http.StatusUnprocessableEntity, Code: codeRequiresApp,
		Description: "This service supports generation of credentials through binding an application only."}
	errMaintenanceInfo = &Error{Status: http.StatusUnprocessableEntity, Code: codeMaintenanceInfoConflict,
		Description: "The maintenance information for the requested Service Plan has changed."}

	errGone           = &Error{Status: http.StatusGone}
	errUnauthorized   = &Error{Status: http.StatusUnauthorized, Code: codeUnauthorized, Description: "The credentials are missing or wrong."}
	errNoSuchRoute    = &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "OSB 2.17 has no such URL."}
	errNoInstance     = &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no such service instance."}
	errNoBinding      = &Error{Status: http.StatusNotFound, Code: codeNotFound, Description: "There is no such service binding."}
	errNotProvisioned = &Error{Status: http.StatusUnprocessableEntity, Code: codeNotProvisioned,
		Description: "The service instance could not be provisioned, so there is nothing to update. Repeat the provision, or delete the instance."}
	errInstanceConflict = &Error{Status: http.StatusConflict, Code: codeConflict,
		Description: "A service instance with this id but different attributes exists."}
	errBindingConflict = &Error{Status: http.StatusConflict, Code: codeConflict,
		Description: "A service binding with this id but different attributes exists."}
)

// methodNotAllowed refuses a method that a URL does not support.
func methodNotAllowed(allow string) *Error {
	return &Error{Status: http.StatusMethodNotAllowed, Code: codeMethodNotAllowed, Allow: allow,
		Description: "This URL does not have this method; it has " + allow + "."}
}

func badRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeBadRequest, Description: fmt.Sprintf(format, args...)}
}

// responses turn errors of other packages into responses; nil for an error of another kind. The first response counts.
// An error without any is a defect and becomes 500.
var responses = []func(error) *Error{
	as[*Error],
	fromJSON,
	refuses[*catalog.UnknownServiceError]("service_id: %v."),
	refuses[*catalog.UnknownPlanError]("plan_id: %v."),
	refuses[*catalog.ParameterError]("%v."),
	tooLargeToStore,
	withoutKey,
	unavailable,
}

// response turns an error into a response. No other code does so.
func response(err error, requestID string) *Error {
	for _, respond := range responses {
		if answer := respond(err); answer != nil {
			return answer
		}
	}
	return &Error{Status: http.StatusInternalServerError, Code: codeInternalError, Err: err,
		Description: "The service broker failed unexpectedly; its operator finds the reason in the log under request " + requestID + "."}
}

// refuses returns a response of 400 to errors of a type.
func refuses[E error](format string) func(error) *Error {
	return func(err error) *Error {
		if !is[E](err) {
			return nil
		}
		return badRequest(format, as[E](err))
	}
}

func fromJSON(err error) *Error {
	malformed := as[*strictjson.Error](err)
	switch {
	case malformed == nil:
		return nil
	case malformed.Kind == strictjson.TooLarge:
		return tooLarge(malformed.Error(), nil)
	}
	return badRequest("The body is malformed: %v.", malformed)
}

func tooLargeToStore(err error) *Error {
	if !apierrors.IsRequestEntityTooLargeError(err) {
		return nil
	}
	return tooLarge("the request is too large to be stored", err)
}

func tooLarge(description string, err error) *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Code: codeTooLarge, Description: "The body is not acceptable: " + description + ".", Err: err}
}

// withoutKey returns the response to what this replica cannot open. Another one may have read a new keyset before.
func withoutKey(err error) *Error {
	if !errors.Is(err, seal.ErrUnknownKey) {
		return nil
	}
	return &Error{Status: http.StatusServiceUnavailable, Code: codeUnavailable, RetryAfter: 10 * time.Second, Err: err,
		Description: "The service broker cannot open what it has stored right now: a key is missing."}
}

// unavailable returns the response to temporary errors.
func unavailable(err error) *Error {
	if !isTemporary(err) {
		return nil
	}
	return &Error{Status: http.StatusServiceUnavailable, Code: codeUnavailable, RetryAfter: time.Second, Err: err,
		Description: "The service broker cannot reach its storage right now."}
}

// isTemporary reports whether the hub is down or overloaded, or the client is gone.
func isTemporary(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsConflict(err) ||
		apierrors.IsInternalError(err) || // what an API server says when its etcd times out
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func is[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

func as[E error](err error) E {
	var target E
	errors.As(err, &target)
	return target
}
