// Package controller is the hub side of self-descriptions: it verifies the
// credentials that providers presented, verifies them again when something they
// rest on has changed, and turns what they prove about a member cluster into the
// claims in its status, which placement obeys.
//
// Each of its writes is a status that follows from other resources and the time.
// A write that is lost is made again at the next look, so that none of them is a
// crash point.
//
// This package must not know HTTP, placement or the broker.
package controller
