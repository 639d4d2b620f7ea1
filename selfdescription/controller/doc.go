// Package controller is the hub side of self-descriptions. It verifies the credentials that
// providers presented, and verifies them again when a key, a status list or a trusted issuer
// that they depend on has changed. It turns what they prove about a member cluster into the
// claims in its status, which placement uses. It keeps the broker's own identity, and signs
// with it its measurements and the description of the organisation that runs it.
//
// A kill between its writes loses nothing. A status follows from other resources and the time: a lost
// write is repeated at the next pass. So are the broker's own credentials; one that was stored
// twice is harmless, and ends. A new key is one update: before it the key is unknown to
// anybody, after it nothing remains to be done.
//
// This package must not know HTTP, placement or the broker.
package controller
