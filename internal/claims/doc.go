// Package claims orders from an Open Service Broker what the claims in a consumer's cluster ask for.
//
// # Invariants
//
//   - What is asked of the broker is in the claim's status before it is sent, and the claim has a finalizer
//     before that. Ids at the broker follow from the claim's UID. So a process that is killed at any instant
//     repeats the same request, and hears what has become of the first.
//   - A request whose result nobody has heard, and which is not wanted any more, is undone before another one
//     is sent (OSB 2.17, "Orphan Mitigation").
//   - A refusal is final for the order that was refused, and for no other one. What the broker could not do is
//     tried again, at times that are in the status.
//   - Credentials are in the claim's Secret only. They are written there before the binding that they replace
//     is unbound, which is kept for a while longer, for pods that have read the Secret before.
//   - A Secret that the claim does not own is neither read for credentials nor written nor deleted. Nothing
//     outside the claim's namespace is.
//
// Claims are read from the API server in each pass, not from a cache: a claim as it was before the last write would
// repeat what is done.
package claims
