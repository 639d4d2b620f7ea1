package selfdescription

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Digest is a SHA-256 digest.
type Digest [sha256.Size]byte

const sriPrefix = "sha256-"

// DigestOf returns the digest of a token in compact serialisation. It identifies a credential.
func DigestOf(compact string) Digest { return sha256.Sum256([]byte(compact)) }

// SignedOf returns the digest of the part of a token that its signature covers. The holder of a token by ECDSA can write its
// signature in a second form, which gives another digest of the token, and the same here.
func SignedOf(compact string) Digest {
	if end := strings.LastIndexByte(compact, '.'); end >= 0 {
		compact = compact[:end]
	}
	return DigestOf(compact)
}

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// SRI returns the digest in the form of Subresource Integrity: "sha256-<base64>".
func (d Digest) SRI() string { return sriPrefix + base64.StdEncoding.EncodeToString(d[:]) }

// ParseSRI reads "sha256-<base64>", and "sha256-<hexadecimal>" as Gaia-X compliance services
// write it.
func ParseSRI(sri string) (Digest, error) {
	encoded, ok := strings.CutPrefix(sri, sriPrefix)
	if !ok {
		return Digest{}, fmt.Errorf("digest %q: does not begin with %s", sri, sriPrefix)
	}
	decode := base64.StdEncoding.Strict().DecodeString
	if len(encoded) == hex.EncodedLen(sha256.Size) {
		decode = hex.DecodeString
	}
	raw, err := decode(encoded)
	if err != nil || len(raw) != sha256.Size {
		return Digest{}, fmt.Errorf("digest %q: not %d bytes in base64 or hexadecimal", sri, sha256.Size)
	}
	return Digest(raw), nil
}
