// Package guarded is the HTTP client for hosts whose names come from strangers or from
// plans: DID documents, status lists, charts. The address is checked when the connection
// is made, after name resolution, so that a name cannot lead into a private network;
// redirects and proxies are not followed; time and number of requests are bounded.
//
// Which hosts may be asked at all, and how long an answer may be, is the caller's to say.
package guarded
