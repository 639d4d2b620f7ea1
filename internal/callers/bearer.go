package callers

import (
	"net/http"
	"strings"
)

// Bearer returns the token of a request, and reports whether its Authorization header has the scheme Bearer (RFC 6750,
// section 2.1), whose name may have upper and lower case (RFC 9110, section 11.1). The token may be empty.
func Bearer(r *http.Request) (token string, sent bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}
