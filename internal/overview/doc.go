// Package overview counts the resources of a hub, and lists those that are not ready, with the reason. The command
// status and the web console show the same overview.
//
// It reads what it is given and writes nothing.
package overview
