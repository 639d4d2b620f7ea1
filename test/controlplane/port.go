package controlplane

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// port is a TCP port on 127.0.0.1 that is ours until released. It is held by a socket that is bound but never listens:
// nobody else is given the port, connections to it are refused, and a server that sets SO_REUSEPORT can listen on it,
// stop and listen again.
type port struct{ socket, number int }

func reservePort() (port, error) {
	syscall.ForkLock.RLock() // no child may inherit the socket
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return port{}, fmt.Errorf("reserve a port: %w", err)
	}
	p := port{socket: socket}
	if err := p.bind(); err != nil {
		p.release()
		return port{}, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	bound, err := unix.Getsockname(p.socket)
	if err != nil {
		return err
	}
	p.number = bound.(*unix.SockaddrInet4).Port
	return nil
}

func (p port) release() { _ = unix.Close(p.socket) }
