//go:build !faults

package crashpoint

// Hit does nothing in a build without the tag faults.
func Hit(string) {}
