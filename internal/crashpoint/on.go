//go:build faults

package crashpoint

import (
	"os"
	"syscall"
)

var armed = os.Getenv("SLUICE_CRASH_POINT")

// Hit kills the process, as kill -9 would, if name is the armed crash point.
func Hit(name string) {
	if name == armed {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // never run on past the point
	}
}
