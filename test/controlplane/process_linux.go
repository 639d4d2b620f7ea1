package controlplane

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent puts a child into its own process group, so that ^C reaches it only through us, and has the kernel kill
// it when we die without having had the time to.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStop blocks until every thread of a process that was sent SIGSTOP has stopped; until then it may still answer.
func (p *process) awaitStop() error {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for %s to stop: %w", p.name, err)
		}
	}
}
