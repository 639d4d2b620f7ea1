package selfdescription

import "time"

// Limits of input. A SelfDescription of the hub has the same limit for its credential.
const (
	MaxCredential      = 256 << 10 // bytes of a credential in compact serialisation
	MaxStatusListToken = 2 << 20   // bytes of a status list credential in compact serialisation; MaxStatusList random bits fit
	MaxPresentation    = 1 << 20   // bytes of a presentation in compact serialisation
	MaxCredentials     = 64        // credentials in a presentation
)

// Media types of the tokens that Sluice issues.
const (
	MediaTypeCredential   = "application/vc+jwt"
	MediaTypePresentation = "application/vp+jwt"
)

// Credential is the content of a VC-JWT.
type Credential struct {
	// Compact is the token as it was received, and Digest its digest.
	Compact string
	Digest  Digest
	// Signed is the digest of what is signed, as of SignedOf; of a JSON-LD document, the digest of
	// its canonical form. It is the same in all forms in which the holder can write one credential.
	Signed Digest
	// ID of the credential; empty if it has none.
	ID string
	// Type of the subject without prefix, for instance LegalPerson.
	Type string
	// Issuer is a DID, Subject the id of the subject.
	Issuer, Subject string
	// ValidFrom and ValidUntil bound the validity: the intersection of validFrom, validUntil
	// and the registered claims nbf, iat and exp. Zero means unbounded.
	ValidFrom, ValidUntil time.Time
	// Status has an entry for each status list that the credential is on.
	Status []StatusEntry
	// Claims is the credentialSubject. Prefixes of Gaia-X terms are removed, and typed literals
	// are replaced by their value; numbers are json.Number.
	Claims map[string]any
	// KeyID is the DID URL of the key and Algorithm its algorithm (RFC 7518).
	KeyID, Algorithm string

	// raw is the credentialSubject as it was signed, types the types of the credential.
	raw   map[string]any
	types any
}

// StatusEntry names the bit of a status list that shows whether a credential was revoked
// (Bitstring Status List v1.0, BitstringStatusListEntry).
type StatusEntry struct {
	Purpose StatusPurpose
	Index   int
	// List is the URL of the credential that holds the list.
	List string
}

// StatusPurpose is the meaning of the bits of a status list.
type StatusPurpose string

// Status purposes. Others are ignored.
const (
	PurposeRevocation StatusPurpose = "revocation"
	PurposeSuspension StatusPurpose = "suspension"
)

// Presentation is the content of a verified VP-JWT.
type Presentation struct {
	// Holder is the DID that signed the presentation.
	Holder string
	// Credentials in compact serialisation. They are not verified yet.
	Credentials []string
	// IssuedAt and ExpiresAt bound its use.
	IssuedAt, ExpiresAt time.Time
}
