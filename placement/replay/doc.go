// Package replay puts the hub's state into an inventory: when a leader starts, for a dry run, for
// proposals, and from a recording, by which a decision can be made again anywhere.
package replay
