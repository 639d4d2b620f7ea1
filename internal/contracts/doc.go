// Package contracts keeps what was agreed about service instances: what each had by the decisions that were delivered, one
// contract after the other, and the terms by which these were made. It makes documents of them for their readers.
//
// A contract in force is stored as its number, its begin and the digest of the one before; the rest is that of the
// delivered decision. One that has ended is stored whole. A contract never changes, except that it ends.
//
// This package signs nothing, and must not know who asks.
package contracts
