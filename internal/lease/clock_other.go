//go:build !linux

package lease

import "time"

var started = time.Now()

// sinceBoot is a clock that runs while the process is stopped. Whether it runs while the
// machine is suspended, the system decides.
func sinceBoot() time.Duration { return time.Since(started) }
