// Package guarded is the HTTP client for hosts named by clients or by plans: DID documents,
// status lists, charts; and the dialer below it, for other protocols. The address is checked when the connection is made, after name
// resolution, so that a name cannot lead into a private network. Redirects and proxies are not
// followed. The time and the number of requests are bounded.
//
// The caller decides which hosts may be asked, and how long an answer may be.
package guarded
