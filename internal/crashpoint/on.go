//go:build faults

package crashpoint

import (
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

var (
	file  = os.Getenv("SLUICE_CRASH_FILE")
	dying sync.Mutex // never released: only one goroutine dies
)

// Hit kills the process, as kill -9 would, if name is among the armed crash points. It disarms
// the point first, so that the next process runs past it.
func Hit(name string) {
	if file == "" {
		return
	}
	text, err := os.ReadFile(file)
	armed := strings.Fields(string(text))
	if err != nil || !slices.Contains(armed, name) {
		return
	}
	dying.Lock()
	left := slices.DeleteFunc(armed, func(other string) bool { return other == name })
	if len(left) == 0 {
		err = os.Remove(file)
	} else {
		err = os.WriteFile(file, []byte(strings.Join(left, "\n")), 0o600)
	}
	if err == nil {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	select {} // never run on past the point
}
