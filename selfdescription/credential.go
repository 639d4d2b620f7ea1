package selfdescription

import "time"

// Limits of what is read. A SelfDescription of the hub holds a credential of the
// same size.
const (
	MaxCredential   = 256 << 10 // bytes of a credential in compact serialisation
	MaxPresentation = 1 << 20   // bytes of a presentation in compact serialisation
	MaxCredentials  = 64        // credentials in a presentation
)

// Media types of what Sluice issues.
const (
	MediaTypeCredential   = "application/vc+jwt"
	MediaTypePresentation = "application/vp+jwt"
)

// Credential is the content of a VC-JWT.
type Credential struct {
	// Compact is the token as it was received, and Digest its digest.
	Compact string
	Digest  Digest
	// Signed is the digest of what the signature covers. Whoever holds an ECDSA token
	// can write its signature in a second valid form, and so make a token of another
	// Digest; Signed stays.
	Signed Digest
	// ID of the credential; empty where it has none.
	ID string
	// Type of the subject without prefix, for instance LegalPerson.
	Type string
	// Issuer is a DID, Subject the id of the subject.
	Issuer, Subject string
	// ValidFrom and ValidUntil bound the validity: what validFrom, validUntil and the
	// registered claims nbf, iat and exp leave of it. Zero means unbounded.
	ValidFrom, ValidUntil time.Time
	// Status has an entry for each status list that the credential is on.
	Status []StatusEntry
	// Claims is the credentialSubject. Prefixes of Gaia-X terms are gone, and typed
	// literals are their value; numbers are json.Number.
	Claims map[string]any
	// KeyID is the DID URL of the key and Algorithm its algorithm (RFC 7518).
	KeyID, Algorithm string

	// raw is the credentialSubject as it was signed, types the types of the credential.
	raw   map[string]any
	types any
}

// StatusEntry says where to look whether a credential was revoked
// (Bitstring Status List v1.0, BitstringStatusListEntry).
type StatusEntry struct {
	Purpose StatusPurpose
	Index   int
	// List is the URL of the credential that holds the list.
	List string
}

// StatusPurpose is what a bit of a status list means.
type StatusPurpose string

// Status purposes. Others are not looked at.
const (
	PurposeRevocation StatusPurpose = "revocation"
	PurposeSuspension StatusPurpose = "suspension"
)

// Presentation is the content of a verified VP-JWT.
type Presentation struct {
	// Holder is the DID that signed.
	Holder string
	// Credentials in compact serialisation. They are not verified yet.
	Credentials []string
	// IssuedAt and ExpiresAt bound its use.
	IssuedAt, ExpiresAt time.Time
}
