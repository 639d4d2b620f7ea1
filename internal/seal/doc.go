// Package seal encrypts credentials before they are stored in the hub, where
// everyone who may read a resource, its backups and its watch streams would
// otherwise read them too.
//
// # Construction
//
// A [Keyset] is a Tink keyset of XChaCha20-Poly1305 keys (256 bits, random
// 192-bit nonces) with Tink's output prefix: a sealed value is one version byte,
// the four-byte key id, the nonce, the ciphertext and a 16-byte tag. New values
// are sealed with the primary key; every key of the set unseals. Random nonces of
// this length make the number of values per key practically unlimited.
//
// Each value is bound to its owner by associated data (see [Owner]): a sealed
// value that is copied to another resource, or to one of the same name created
// later, does not unseal.
//
// # Limits
//
//   - The keyset file holds the keys in clear, in Tink's JSON format. Anyone who can
//     read both it and the hub can read the credentials; keep it off the hub's
//     volume and out of its backups. It must have mode 0600, or be a mounted
//     Secret.
//   - Without the file, sealed values are lost. Back it up.
//   - An older value of the same owner unseals as well: sealing does not detect
//     rollback. The length of a value is visible.
//   - XChaCha20-Poly1305 does not commit to its key: somebody who has several keys of
//     the set can make a value that unseals under each. Only Sluice should have them.
//   - Go cannot erase memory reliably; credentials stay in the heap until it is
//     reused.
//   - Rotation limits what a later theft of the new key alone reveals; it does not
//     make values sealed with the old keys safe. After a theft of the file, issue
//     the credentials anew.
//
// This package must not know what it seals.
package seal
