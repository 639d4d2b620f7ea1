// Package callers bounds what anybody may ask of a server before it is known who it is: how
// many connections are open, and how often one address calls.
//
// An address is that of the connection: behind a proxy, all clients have the proxy's. An
// IPv6 address stands for its /64, as a customer has that many.
package callers
