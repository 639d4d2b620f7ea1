package market

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// Error is an error answer. Its body has the form of OSB's: {"error": Code, "description": Description}.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code of the error, for programs.
	Code string
	// Description for people: the field or header, what is wrong with it, and what to do.
	Description string
	// RetryAfter asks the client to wait; zero sends no such header.
	RetryAfter time.Duration
	// OAuth says that the body has the description by the name of RFC 6749, section 5.2, too.
	OAuth bool
	// Allow lists the methods of the URL, for 405 (RFC 9110, section 15.5.6).
	Allow string
}

func (e *Error) Error() string { return e.Code + ": " + e.Description }

// Codes of errors, beside those of the routes.
const (
	codeBadRequest   = "BadRequest"
	codeUnauthorized = "Unauthorized"
	codeForbidden    = "Forbidden"
	codeNotFound     = "NotFound"
	codeMethod       = "MethodNotAllowed"
	codeTooMany      = "TooManyRequests"
	codeUnavailable  = "Unavailable"
	codeInternal     = "InternalError"
)

func badRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: codeBadRequest, Description: fmt.Sprintf(format, args...)}
}

// errorBody is the body of an error answer.
type errorBody struct {
	Error       string `json:"error"`
	Description string `json:"description"`
	// OAuth is Description by the name of RFC 6749, section 5.2.
	OAuth string `json:"error_description,omitempty"`
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client has gone
}
