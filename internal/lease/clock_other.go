//go:build !linux

package lease

import "time"

var started = time.Now()

// sinceBoot is a clock that goes on while the process is stopped. Whether it goes on while the
// machine is suspended depends on the system.
func sinceBoot() time.Duration { return time.Since(started) }
