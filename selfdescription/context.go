package selfdescription

import (
	"crypto/sha256"
	_ "embed" // the vocabulary of Sluice
	"encoding/hex"
	"slices"
)

// URLs of JSON-LD contexts that a credential may have.
const (
	ContextCredentials = "https://www.w3.org/ns/credentials/v2" // always the first
	ContextGaiaX       = "https://w3id.org/gaia-x/development#"
	ContextSluice      = "https://sluice.dev/ns/v1"
)

// Context is a JSON-LD context that credentials may refer to.
type Context struct {
	URL string
	// Digest of the document that the URL means here, whatever its server answers.
	Digest Digest
	// Document is set for contexts that Sluice publishes itself.
	Document []byte
}

//go:embed ns.v1.jsonld
var sluiceContext []byte

// The Gaia-X context is published under one URL, and its terms have changed over time. This
// digest belongs to release 25.11. VCDM 2.0, appendix B.1, has the digest of the W3C context.
var contexts = []Context{
	{URL: ContextCredentials, Digest: digest("59955ced6697d61e03f2b2556febe5308ab16842846f5b586d7f1f7adec92734")},
	{URL: ContextGaiaX, Digest: digest("70a07043511f02259aec702079411c852c5763e90370b1930a35920d7b0a5a33")},
	{URL: ContextSluice, Digest: sha256.Sum256(sluiceContext), Document: sluiceContext},
}

// Contexts lists all contexts that a credential may have. None is ever fetched.
func Contexts() []Context { return slices.Clone(contexts) }

func digest(hexadecimal string) Digest {
	raw, err := hex.DecodeString(hexadecimal)
	if err != nil {
		panic(err) // a constant of this package
	}
	return Digest(raw)
}

// Types of subjects that this package interprets, without prefix.
const (
	TypeLegalPerson            = "LegalPerson"
	TypeComputeServiceOffering = "ComputeServiceOffering"
	TypeServiceOffering        = "ServiceOffering"
	TypePhysicalResource       = "PhysicalResource"
	TypeDatacenter             = "Datacenter"
	TypeVirtualResource        = "VirtualResource"
	TypeAvailabilityZone       = "AvailabilityZone"
	TypeLabelCredential        = "LabelCredential"
	TypeIssuer                 = "Issuer" // accepts the terms and conditions of Gaia-X
	TypeClusterBinding         = "ClusterBinding"
	TypeClusterMeasurement     = "ClusterMeasurement"
	TypeCertification          = "Certification"
	TypeStatusList             = "BitstringStatusList"
	typeVerifiableCredential   = "VerifiableCredential"
	typeVerifiablePresentation = "VerifiablePresentation"
	typeEnvelopedCredential    = "EnvelopedVerifiableCredential"
	typeStatusListCredential   = "BitstringStatusListCredential"
	typeStatusListEntry        = "BitstringStatusListEntry"
)

// contextOf returns the context that defines a type of subject, beside ContextCredentials.
// Empty means that ContextCredentials defines it.
func contextOf(subjectType string) string {
	switch subjectType {
	case TypeClusterBinding, TypeClusterMeasurement, TypeCertification:
		return ContextSluice
	case TypeStatusList:
		return ""
	}
	return ContextGaiaX
}
