// Package loopback finds addresses of this machine for the servers of tests.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// The ports from which Port chooses: above those of well-known services, and below those that Linux gives to
// connections and to listeners without a port of their own (ip(7), ip_local_port_range).
const first, last = 20_000, 32_000

// Address returns an address of the loopback interface with a Port.
func Address() string { return fmt.Sprintf("127.0.0.1:%d", Port()) }

// Port returns a TCP port on which nothing listens. Nothing takes it by chance while its server is started, or started
// again.
func Port() int {
	for {
		port := first + rand.IntN(last-first)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // somebody listens there
		}
		_ = listener.Close()
		return port
	}
}
