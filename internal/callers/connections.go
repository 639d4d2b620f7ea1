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

// mostConnections is how many connections a server needs at most: a platform keeps a few.
const mostConnections = 4096

// Connections limits the connections of an http.Server, see Limit. At the limit, a new connection
// replaces an idle one: the one that has been idle longest, among those of the address with the
// most connections. If none is idle, the new connection is closed. No address may have more than
// half of the limit. A connection counts until it is closed, also one that a handler has taken over.
type Connections struct {
	most int

	mu        sync.Mutex
	open      int
	addresses map[netip.Addr]*address
}

// address is the connections of one address.
type address struct {
	at   netip.Addr
	open int
	idle list.List // of *entry, the longest idle first
}

// entry stands for one connection, until that is closed.
type entry struct {
	from *address
	// idle is its element in the address's list of idle connections; nil while it is active.
	idle *list.Element
	// shut closes the connection at once, without the closing message of TLS, which might block.
	shut  func() error
	ended bool
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
	return &Connections{most: max(most, 2), addresses: map[netip.Addr]*address{}}
}

// Limit limits the connections that a server accepts from a socket. It returns the socket to serve, below TLS.
func (c *Connections) Limit(server *http.Server, socket *net.TCPListener) net.Listener {
	server.ConnState = c.state
	return &listener{socket, c}
}

type listener struct {
	*net.TCPListener
	connections *Connections
}

// Accept returns a connection that counts; the limit may have closed it already.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return &connection{conn, l.connections, l.connections.begin(addressOf(conn.RemoteAddr().String()), conn.Close)}, nil
}

type connection struct {
	*net.TCPConn
	connections *Connections
	entry       *entry
}

func (c *connection) Close() error {
	c.connections.end(c.entry)
	return c.TCPConn.Close()
}

// state follows the state of a connection.
func (c *Connections) state(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	e := conn.(*connection).entry
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateActive:
		e.busy()
	case http.StateIdle:
		e.wait()
	}
}

// begin counts a connection. At the limit it closes one, perhaps the new one.
func (c *Connections) begin(at netip.Addr, shut func() error) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.addresses[at]
	if from == nil {
		from = &address{at: at}
		c.addresses[at] = from
	}
	added := &entry{from: from, shut: shut}
	c.open++
	from.open++
	crowded := from
	if from.open <= c.most/2 {
		if c.open <= c.most {
			added.wait()
			return added
		}
		crowded = c.mostCrowded()
	}
	leaves := added
	if crowded != nil && crowded.idle.Len() > 0 {
		leaves = crowded.idle.Front().Value.(*entry)
	}
	if leaves != added {
		added.wait()
	}
	c.forget(leaves)
	_ = leaves.shut()
	return added
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

// end counts a connection no longer.
func (c *Connections) end(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(e)
}

func (c *Connections) forget(e *entry) {
	if e.ended {
		return
	}
	e.busy()
	e.ended = true
	c.open--
	if e.from.open--; e.from.open == 0 {
		delete(c.addresses, e.from.at)
	}
}

func (e *entry) wait() {
	if e.idle == nil && !e.ended {
		e.idle = e.from.idle.PushBack(e)
	}
}

func (e *entry) busy() {
	if e.idle != nil {
		e.from.idle.Remove(e.idle)
		e.idle = nil
	}
}
