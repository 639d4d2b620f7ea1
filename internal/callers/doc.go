// Package callers limits what a client may do before it has authenticated: how many connections
// are open, and how often one address calls. It also reads the token by which a client authenticates.
//
// The address is that of the connection: behind a proxy, all clients have the proxy's. An IPv6
// address stands for its /64, because one customer usually has a whole /64.
package callers
