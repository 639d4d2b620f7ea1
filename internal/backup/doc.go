// Package backup reads and writes the backups of a hub: streams of its resources and of the files that
// belong to it.
//
// # Format
//
// A backup is one line of text, [Magic] with the version of the format, and then a file of age
// (age-encryption.org/v1), sealed for a key that is kept elsewhere. In it is gzip, and in that are lines of JSON,
// each an [Entry] with one field:
//
//	{"header": …}    first: the hub, and when and at which revision it was read
//	{"file": …}      a file beside the hub, for instance its keyset
//	{"object": …}    a resource as the hub stores it
//	{"end": …}       last: how many entries there are before it, and the SHA-256 of their lines
//
// age authenticates every 64 KiB, and the end of the stream, so a backup that was altered or cut does not read; the
// entry at the end detects a writer that did not finish. Both ends of a stream need memory for one entry.
//
// This package must not know what is backed up.
package backup
