// Package crashpoint names the instants at which a kill must lose nothing: one
// before and one after every write of the control path.
//
// In ordinary builds Hit does nothing and costs nothing. Built with the tag
// faults, Hit(name) sends the process SIGKILL when the file named by the
// environment variable SLUICE_CRASH_FILE holds that name among others, one a line,
// which is how test/crash and test/e2e kill Sluice there.
package crashpoint
