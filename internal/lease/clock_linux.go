package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that goes on while the process is stopped and while the machine is
// suspended (clock_gettime(2), CLOCK_BOOTTIME), and that cannot be set.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // available since Linux 2.6.39
	}
	return time.Duration(now.Nano())
}
