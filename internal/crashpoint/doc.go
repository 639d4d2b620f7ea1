// Package crashpoint kills the process right after its writes to the hub and to clusters. A kill
// there must lose nothing.
//
// What Sluice changes on the hub and on clusters, it changes by requests to API servers. So
// a process that dies leaves what it has written until then, and its death before a write leaves what
// its death after the write before that one does: to die after each write is to die everywhere.
// What it asks of other brokers is between those writes: package bindings and cmd/sluice kill there.
// [Guard] watches the requests of every client that is built on a configuration; a new write needs no
// line of its own.
//
// In ordinary builds Guard does nothing. Built with the tag faults, it kills the process, as
// kill -9 would, if the file exists that the environment variable SLUICE_CRASH_FILE names. The
// write is recorded in the file first, and a recorded write is passed. A process that is
// started again and again therefore dies at each write once, whatever the order in which it
// comes to them, and then lives. The test creates the file, empty, and reads the writes from it.
// Writes that the regular expression in SLUICE_CRASH_PAST matches are passed, too.
//
// A line is such as
//
//	hub update serviceinstances/status: decision operation Accepted
//
// with the server, the verb and the resource, the fields that the write sends, as far as they
// tell one step from another, and the reasons and states in them.
package crashpoint
