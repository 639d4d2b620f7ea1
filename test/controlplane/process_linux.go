package controlplane

import "syscall"

// dieWithParent puts a child into its own process group, so that ^C reaches it only through us, and has the kernel kill
// it when we die without having had the time to.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
