// Package controller is the hub side of self-descriptions. It verifies the
// credentials that providers presented, verifies them again when something they
// rest on has changed, and turns what they prove about a member cluster into the
// claims in its status, which placement obeys. It keeps the broker's own identity,
// and signs with it what the broker measured and who runs it.
//
// Its writes need no crash points. A status follows from other resources and the
// time: one that is lost is made again at the next look. So are the broker's own
// credentials, and one that was stored twice says the same twice, until it ends. A
// new key is one update: before it nobody has seen the key, after it nothing is left
// to do.
//
// This package must not know HTTP, placement or the broker.
package controller
