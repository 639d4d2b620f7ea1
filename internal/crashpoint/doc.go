// Package crashpoint names the instants at which a kill must lose nothing: one
// before and one after every write of the control path.
//
// In ordinary builds Hit does nothing and costs nothing. Built with the tag faults, Hit(name)
// sends SIGKILL to the process if name is a line of the file named by the environment variable
// SLUICE_CRASH_FILE. test/crash and test/e2e use this to kill Sluice at that instant.
package crashpoint
