package callers

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestACallerWhoCallsTooOftenWaits(t *testing.T) {
	const burst = 20
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	c := NewCalls(5, burst, clock)
	one, neighbour, other := addressOf("[2001:db8::1]:1"), addressOf("[2001:db8::2]:2"), netip.MustParseAddr("192.0.2.1")
	for range burst {
		if wait := c.Wait(one) + c.Count(one); wait > 0 {
			t.Fatalf("waits %s within its burst", wait)
		}
	}
	if c.Wait(neighbour) <= 0 || c.Count(neighbour) <= 0 {
		t.Error("an address of the same /64 has a burst of its own")
	}
	if wait := c.Count(other); wait > 0 {
		t.Errorf("another address waits %s", wait)
	}
	wait := c.Wait(one)
	clock.SetTime(clock.Now().Add(wait))
	if wait <= 0 || c.Count(one) > 0 {
		t.Errorf("after waiting %s as it was told it waits again", wait)
	}
}

// TestIdleConnectionsDoNotCrowdOut: unknown clients open a few thousand connections, more than
// the process may have, and active clients are still answered.
func TestIdleConnectionsDoNotCrowdOut(t *testing.T) {
	const strangers, descriptors = 3000, 512
	lowerDescriptors(t, descriptors)
	connections := NewConnections(0)
	if connections.most > descriptors/2 {
		t.Fatalf("%d connections with %d descriptors", connections.most, descriptors)
	}
	var refused atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		// The descriptors for the hub and the member clusters are available.
		spare, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			refused.Add(1)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		spare.Close()
	}))
	server.Listener = connections.Limit(server.Config, server.Listener.(*net.TCPListener))
	server.Start()
	t.Cleanup(server.Close)

	address, working := server.Listener.Addr().String(), &http.Client{Timeout: 10 * time.Second}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}} // strangers are from elsewhere
	var held []net.Conn
	for i := range strangers {
		conn, err := dialer.Dial("tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		held = append(held, conn)
		if len(held) == descriptors/4 { // the test has the same descriptors: its own end of the oldest goes
			held[0].Close()
			held = held[1:]
		}
		if i%2 == 0 { // half of them have made a request
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		if i%100 == 0 {
			response, err := working.Get(server.URL)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("after %d connections: %v, %v", i, response, err)
			}
			response.Body.Close()
		}
	}
	if n := refused.Load(); n > 0 {
		t.Errorf("%d requests found no descriptor", n)
	}
	for _, conn := range held {
		conn.Close()
	}
}

// TestTakenOverConnectionsCount: until they are closed, also after the handler that took one over has returned.
func TestTakenOverConnectionsCount(t *testing.T) {
	connections, over, ended := NewConnections(2), make(chan struct{}), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, "taken")
		go func() {
			<-over
			conn.Close()
			close(ended)
		}()
	}))
	server.Listener = connections.Limit(server.Config, server.Listener.(*net.TCPListener))
	server.Start()
	t.Cleanup(server.Close)
	said := func() (got string) {
		t.Helper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		answer := make([]byte, 5)
		n, _ := conn.Read(answer)
		return string(answer[:n])
	}
	if first, second := said(), said(); first != "taken" || second != "" {
		t.Errorf("of two from one address, which may have one, they get %q and %q", first, second)
	}
	close(over)
	<-ended
	connections.mu.Lock()
	defer connections.mu.Unlock()
	if connections.open != 0 {
		t.Error("a connection counts after its end")
	}
}

// TestWhoLeaves: at the limit, the longest idle connection of the address with the most is
// replaced.
func TestWhoLeaves(t *testing.T) {
	c, closed := NewConnections(6), map[*entry]bool{}
	var all []*entry
	open := func(from string) *entry {
		var e *entry
		refused := false
		e = c.begin(netip.MustParseAddr(from), func() error { refused = e == nil; closed[e] = true; return nil })
		closed[e] = refused
		all = append(all, e)
		return e
	}
	mine := open("192.0.2.1")
	mine.busy()
	mine.wait()
	crowd := []*entry{open("192.0.2.2"), open("192.0.2.2"), open("192.0.2.2")}
	if closed[crowd[0]] {
		t.Error("one of half of the connections is closed")
	}
	if fourth := open("192.0.2.2"); closed[fourth] || !closed[crowd[0]] {
		t.Error("an address has more than half, or its newest went instead of its oldest")
	}
	crowd[1].busy() // it works: the next to go is the third
	open("192.0.2.3")
	open("192.0.2.4")
	if closed[open("192.0.2.5")] || closed[mine] || closed[crowd[1]] || !closed[crowd[2]] {
		t.Errorf("of a full house, closed: mine %v, working %v, waiting %v", closed[mine], closed[crowd[1]], closed[crowd[2]])
	}
	for _, e := range all {
		e.busy()
	}
	if last := open("192.0.2.6"); !closed[last] {
		t.Error("where all work, one more is let in")
	}
	for _, e := range all {
		c.end(e)
		e.wait() // comes after its end
	}
	if c.open > 0 || len(c.addresses) > 0 {
		t.Errorf("left over: %d connections of %d addresses", c.open, len(c.addresses))
	}
}

// lowerDescriptors lowers the limit of open files for one test.
func lowerDescriptors(t *testing.T, to uint64) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	lowered := before
	lowered.Cur = to
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lowered); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
}
