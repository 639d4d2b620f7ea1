package callers

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
)

// mostConnections is how many connections a server needs at most: a platform keeps a few.
const mostConnections = 4096

// Connections limits the connections of an http.Server, see Limit. At the limit, a new connection
// replaces an idle one: the one that has been idle longest, among those of the address with the
// most connections. If none is idle, the new connection is closed. No address may have more than
// half of the limit. A connection that a handler takes over, for a WebSocket, counts until the
// handler returns.
type Connections struct {
	most int

	mu        sync.Mutex
	open      map[net.Conn]*connection
	addresses map[netip.Addr]*address
}

// connection is an open connection.
type connection struct {
	net.Conn
	from *address
	// idle is its element in the address's list of idle connections; nil while it is active.
	idle *list.Element
	// taken is set once a handler has taken the connection over.
	taken bool
}

// address is the connections of one address.
type address struct {
	at   netip.Addr
	open int
	idle list.List // of *connection, the longest idle first
}

// NewConnections sets the limit to most. 0 means half of the file descriptors that the process
// may have, and at most 4,096; the other half is for the hub and the member clusters.
// (Descriptors are counted by the hard limit: Go raises the soft limit to it at start.)
func NewConnections(most int) *Connections {
	if most == 0 {
		most = mostConnections
		var limit syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
			most = int(min(limit.Cur/2, mostConnections))
		}
	}
	return &Connections{most: max(most, 2), open: map[net.Conn]*connection{}, addresses: map[netip.Addr]*address{}}
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// Limit limits the connections of a server whose handler is set.
func (c *Connections) Limit(server *http.Server) {
	server.ConnState = c.state
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
		defer c.release(conn)
		handler.ServeHTTP(w, r)
	})
}

// release ends a connection that its handler has taken over.
func (c *Connections) release(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[conn]; known != nil && known.taken {
		c.end(conn)
	}
}

// state follows the state of a connection.
func (c *Connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.begin(conn)
	case http.StateActive:
		if known := c.open[conn]; known != nil {
			known.busy()
		}
	case http.StateIdle:
		if known := c.open[conn]; known != nil {
			known.wait()
		}
	case http.StateHijacked:
		if known := c.open[conn]; known != nil {
			known.taken = true
		}
	case http.StateClosed:
		c.end(conn)
	}
}

// begin counts a connection. At the limit it closes one, perhaps the new one.
func (c *Connections) begin(conn net.Conn) {
	at := addressOf(conn.RemoteAddr().String())
	from := c.addresses[at]
	if from == nil {
		from = &address{at: at}
		c.addresses[at] = from
	}
	added := &connection{Conn: conn, from: from}
	c.open[conn] = added
	from.open++
	crowded := from
	if from.open <= c.most/2 {
		if len(c.open) <= c.most {
			added.wait()
			return
		}
		crowded = c.mostCrowded()
	}
	leaves := added
	if crowded != nil && crowded.idle.Len() > 0 {
		leaves = crowded.idle.Front().Value.(*connection)
	}
	if leaves != added {
		added.wait()
	}
	c.end(leaves.Conn)
	shut(leaves.Conn)
}

// mostCrowded returns the address with the most connections, of those with an idle one.
func (c *Connections) mostCrowded() *address {
	var most *address
	for _, a := range c.addresses {
		if a.idle.Len() > 0 && (most == nil || a.open > most.open) {
			most = a
		}
	}
	return most
}

func (c *Connections) end(conn net.Conn) {
	known := c.open[conn]
	if known == nil {
		return
	}
	known.busy()
	delete(c.open, conn)
	if known.from.open--; known.from.open == 0 {
		delete(c.addresses, known.from.at)
	}
}

func (c *connection) wait() {
	if c.idle == nil {
		c.idle = c.from.idle.PushBack(c)
	}
}

func (c *connection) busy() {
	if c.idle != nil {
		c.from.idle.Remove(c.idle)
		c.idle = nil
	}
}

// shut closes a connection at once, without the closing message of TLS, which might block.
func shut(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}
