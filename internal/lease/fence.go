package lease

import (
	"net/http"
)

// Fence returns a transport that refuses to write while the replica does not lead, with
// ErrNotLeading. Reads pass. A nil Lease refuses nothing.
//
// It asks nobody, so it costs nothing. That a request which it let pass arrives late is
// what the margin between the Lease and its renewal is for. On a machine that is paused
// with its clocks it notices nothing: there, what must not happen is kept from happening
// by Confirm.
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
		if !f.lease.Leads() {
			if r.Body != nil {
				_ = r.Body.Close() // as RoundTrippers must
			}
			return nil, ErrNotLeading
		}
	}
	return f.next.RoundTrip(r)
}

// WrappedRoundTripper lets client-go look through it.
func (f *fence) WrappedRoundTripper() http.RoundTripper { return f.next }
