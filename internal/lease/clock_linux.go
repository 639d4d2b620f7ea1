package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is a clock that runs while the process is stopped and while the machine is
// suspended (clock_gettime(2), CLOCK_BOOTTIME), and that nobody can set.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err) // since Linux 2.6.39
	}
	return time.Duration(now.Nano())
}
