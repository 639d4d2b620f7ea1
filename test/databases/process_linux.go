package databases

import (
	"os"
	"syscall"
)

// nobody is Debian's user without rights, and its group.
const nobody = 65534

// unprivileged makes a command run as a user without rights, since database servers refuse to run as root, in a process
// group of its own, and die with this process.
func unprivileged() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		a.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return a
}

// give makes a file belong to that user.
func give(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(path, nobody, nobody)
}
