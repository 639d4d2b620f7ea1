package callers

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
)

// mostConnections is how many connections a server has use for: platforms keep a few each.
const mostConnections = 4096

// Connections bounds the connections of an http.Server, whose ConnState is State. What is
// one too many takes the place of another that does nothing: the one that has waited longest
// among those of the address that has most. Where none does nothing, it is closed itself. No
// address has more than half of them.
type Connections struct {
	most int

	mu        sync.Mutex
	open      map[net.Conn]*connection
	addresses map[netip.Addr]*address
}

// connection is one that is open.
type connection struct {
	net.Conn
	from *address
	// idle is its place among those of its address that do nothing; nil while it does
	// something.
	idle *list.Element
}

// address has connections.
type address struct {
	at   netip.Addr
	open int
	idle list.List // of *connection, the one that has waited longest first
}

// NewConnections bounds them by a number; 0 means half of the descriptors that the process
// may have, and 4,096 at most. The other half is for the hub and the member clusters. (The
// limit is the hard one: Go raises the soft one at start.)
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

// State follows a connection.
func (c *Connections) State(conn net.Conn, state http.ConnState) {
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
	case http.StateClosed, http.StateHijacked:
		c.end(conn)
	}
}

// begin counts a connection, and closes one, perhaps itself, where there are too many.
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

// mostCrowded is the address that has most connections, of those that have one that does
// nothing.
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

// shut closes a connection at once: one of TLS says no goodbye, which might block.
func shut(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	_ = conn.Close()
}
