package lease

import (
	"net/http"
)

// Fence returns a transport that refuses writes with ErrNotLeading while the replica does not
// lead. Reads pass. A nil Lease refuses nothing.
//
// It sends no request, so it costs nothing. A request that it passed may arrive late; the
// margin between Lease and Renew (see Durations) covers that. Fence does not notice that a
// machine was paused together with its clocks. Use Confirm before any step that would do harm
// in that case.
func (l *Lease) Fence(next http.RoundTripper) http.RoundTripper {
	if l == nil {
		return next
	}
	return &fence{l, next}
}

type fence struct {
	lease *Lease
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (f *fence) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if !f.lease.leads() {
			if r.Body != nil {
				_ = r.Body.Close() // the contract of http.RoundTripper
			}
			return nil, ErrNotLeading
		}
	}
	return f.next.RoundTrip(r)
}

// WrappedRoundTripper gives client-go the transport below.
func (f *fence) WrappedRoundTripper() http.RoundTripper { return f.next }
