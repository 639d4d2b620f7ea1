package did

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/internal/strictjson"
)

// Bounds of a DID document.
const (
	maxDocument = 64 << 10 // bytes
	maxDepth    = 16
	maxMethods  = 64
)

// Document is the DID document that the owner of a did:web publishes.
type Document struct {
	Context            []string             `json:"@context"`
	ID                 string               `json:"id"`
	VerificationMethod []VerificationMethod `json:"verificationMethod"`
	AssertionMethod    []string             `json:"assertionMethod"`
}

// VerificationMethod is a public key in a DID document.
type VerificationMethod struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Controller   string          `json:"controller"`
	PublicKeyJWK jose.JSONWebKey `json:"publicKeyJwk"`
}

// WebDocument returns the document of a did:web that lists keys for assertions, in the form
// that Gaia-X verifiers read (JsonWebKey2020). The KeyID of each key is its DID URL, or its
// fragment. Of private keys only the public half is published.
func WebDocument(did string, keys []jose.JSONWebKey) Document {
	document := Document{
		Context:            []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/suites/jws-2020/v1"},
		ID:                 did,
		VerificationMethod: []VerificationMethod{},
		AssertionMethod:    []string{},
	}
	for _, key := range keys {
		public := key.Public()
		if _, _, ok := strings.Cut(key.KeyID, "#"); !ok {
			public.KeyID = "#" + key.KeyID
		}
		public.KeyID = absolute(did, public.KeyID)
		document.VerificationMethod = append(document.VerificationMethod, VerificationMethod{
			ID: public.KeyID, Type: "JsonWebKey2020", Controller: did, PublicKeyJWK: public,
		})
		document.AssertionMethod = append(document.AssertionMethod, public.KeyID)
	}
	return document
}

// assertions are the keys that a DID lists for assertions, by DID URL.
type assertions map[string]assertion

// Size implements Sized, in round figures.
func (a assertions) Size() int { return (len(a) + 1) << 10 }

// assertion is a key, or the reason why the document's entry cannot be used. A bad entry does
// not affect the others: documents list keys of many kinds.
type assertion struct {
	jwk        jose.JSONWebKey
	thumbprint string // SHA-256 (RFC 7638), base64url
	err        error
}

// wireDocument is the part of a DID document that is read (DID Core 1.0, 5).
type wireDocument struct {
	ID                 string            `json:"id"`
	VerificationMethod []wireMethod      `json:"verificationMethod"`
	AssertionMethod    []json.RawMessage `json:"assertionMethod"` // ids, or methods
}

type wireMethod struct {
	ID           string          `json:"id"`
	Type         string          `json:"type"`
	Controller   string          `json:"controller"`
	PublicKeyJWK json.RawMessage `json:"publicKeyJwk"`
}

// isDocument reports whether an answer claims to be the document of the DID. Then it comes from
// the owner, well-formed or not. A web page or {} comes from somebody else.
func isDocument(did string, data []byte) bool {
	var document struct {
		ID string `json:"id"`
	}
	return json.NewDecoder(bytes.NewReader(data)).Decode(&document) == nil && document.ID == did
}

// decodeDocument reads the DID document of a DID. It refuses a document as a whole if it is of
// another DID, contains private keys or is ambiguous.
func decodeDocument(did string, data []byte) (assertions, error) {
	limits := strictjson.Limits{Bytes: maxDocument, Depth: maxDepth, Object: true}
	var whole any
	if err := strictjson.Decode(bytes.NewReader(data), limits, &whole); err != nil {
		return nil, fmt.Errorf("read the DID document: %w", err)
	}
	if givesAwayPrivateKey(whole) {
		return nil, errors.New("the DID document holds a private key: whoever reads it can sign")
	}
	var document wireDocument
	if err := strictjson.Decode(bytes.NewReader(data), limits, &document); err != nil {
		return nil, fmt.Errorf("read the DID document: %w", err)
	}
	if document.ID != did {
		return nil, fmt.Errorf("the DID document is of %q", clip(document.ID))
	}
	if len(document.VerificationMethod) > maxMethods || len(document.AssertionMethod) > maxMethods {
		return nil, fmt.Errorf("the DID document has more than %d keys", maxMethods)
	}
	return collect(did, document)
}

// Published is the content of a DID document: the keys that it lists for assertions, and why
// other entries cannot be used.
type Published struct {
	DID  string
	Keys []jose.JSONWebKey // KeyID of each is its DID URL
	// Skipped has a line for each entry that cannot be used, with the reason.
	Skipped []string
}

// ReadDocument reads a DID document, of the DID that it names itself. The keys are those that
// its assertionMethod lists, of that DID and controlled by it; nothing else in the document is
// used. The caller must know that the document comes from its owner.
func ReadDocument(data []byte) (*Published, error) {
	var head struct {
		ID string `json:"id"`
	}
	if err := strictjson.Decode(bytes.NewReader(data), strictjson.Limits{Bytes: maxDocument, Depth: maxDepth, Object: true}, &head); err != nil {
		return nil, fmt.Errorf("read the DID document: %w", err)
	}
	if err := checkDID(head.ID); err != nil {
		return nil, fmt.Errorf("read the DID document: id %q: %w", clip(head.ID), err)
	}
	found, err := decodeDocument(head.ID, data)
	if err != nil {
		return nil, err
	}
	p := &Published{DID: head.ID}
	for _, id := range slices.Sorted(maps.Keys(found)) {
		if key := found[id]; key.err != nil {
			p.Skipped = append(p.Skipped, fmt.Sprintf("key %q: %v", clip(id), key.err))
		} else {
			p.Keys = append(p.Keys, key.jwk)
		}
	}
	return p, nil
}

// ReadKeySet reads a JSON Web Key Set of one DID: "kid" of each key is a DID URL.
func ReadKeySet(data []byte) (*Published, error) {
	limits := strictjson.Limits{Bytes: maxDocument, Depth: maxDepth, Object: true}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := strictjson.Decode(bytes.NewReader(data), limits, &set); err != nil {
		return nil, fmt.Errorf("read the JSON Web Key Set: %w", err)
	}
	p := &Published{}
	for i, raw := range set.Keys {
		var head struct {
			ID string `json:"kid"`
		}
		var whole any
		err := errors.Join(strictjson.Decode(bytes.NewReader(raw), limits, &whole), strictjson.Decode(bytes.NewReader(raw), limits, &head))
		if err != nil {
			return nil, fmt.Errorf("read the JSON Web Key Set: /keys/%d: %w", i, err)
		}
		if givesAwayPrivateKey(whole) {
			return nil, fmt.Errorf("key %q is a private key: whoever reads it can sign", clip(head.ID))
		}
		did, _, err := Split(head.ID)
		if err != nil {
			return nil, fmt.Errorf("key %q: its kid is not a DID URL with a fragment", clip(head.ID))
		}
		if p.DID != "" && p.DID != did {
			return nil, fmt.Errorf("keys of two DIDs, %s and %s: want a file for each", clip(p.DID), clip(did))
		}
		p.DID = did
		key, err := readJWK(raw)
		if err != nil {
			p.Skipped = append(p.Skipped, fmt.Sprintf("key %q: %v", clip(head.ID), err))
			continue
		}
		p.Keys = append(p.Keys, *key)
	}
	return p, nil
}

// collect finds the methods listed for assertions, by reference or embedded.
func collect(did string, document wireDocument) (assertions, error) {
	methods := map[string]wireMethod{}
	add := func(method wireMethod) error {
		id := absolute(did, method.ID)
		if _, ok := methods[id]; ok {
			return fmt.Errorf("the DID document has two keys %q", clip(id))
		}
		methods[id] = method
		return nil
	}
	for _, method := range document.VerificationMethod {
		if err := add(method); err != nil {
			return nil, err
		}
	}
	listed := map[string]bool{}
	for _, raw := range document.AssertionMethod {
		var id string
		if json.Unmarshal(raw, &id) != nil {
			var method wireMethod
			if err := strictjson.Decode(bytes.NewReader(raw), strictjson.Limits{Object: true}, &method); err != nil {
				return nil, fmt.Errorf("read an assertionMethod of the DID document: %w", err)
			}
			if err := add(method); err != nil {
				return nil, err
			}
			id = method.ID
		}
		listed[absolute(did, id)] = true
	}
	found := assertions{}
	for id := range listed {
		switch method, ok := methods[id]; {
		case !strings.HasPrefix(id, did+"#"):
			found[id] = assertion{err: errors.New("it is of another DID")}
		case ok:
			found[id] = readMethod(did, id, method)
		}
	}
	return found, nil
}

func readMethod(did, id string, method wireMethod) assertion {
	switch {
	case method.Controller != did:
		return assertion{err: fmt.Errorf("its controller is %q", clip(method.Controller))}
	case method.Type != "JsonWebKey2020" && method.Type != "JsonWebKey":
		return assertion{err: fmt.Errorf("its type is %q, want JsonWebKey2020 or JsonWebKey", clip(method.Type))}
	}
	jwk, err := readJWK(method.PublicKeyJWK)
	if err != nil {
		return assertion{err: err}
	}
	thumbprint, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return assertion{err: fmt.Errorf("digest the key: %w", err)}
	}
	jwk.KeyID = id
	return assertion{jwk: *jwk, thumbprint: base64.RawURLEncoding.EncodeToString(thumbprint)}
}

// readJWK reads a public key whose JSON was checked for duplicates. Certificates in it are
// dropped: only fetched and verified ones count.
func readJWK(raw []byte) (*jose.JSONWebKey, error) {
	var operations struct {
		KeyOps []string `json:"key_ops"`
	}
	if err := strictjson.Decode(bytes.NewReader(raw), strictjson.Limits{Object: true}, &operations); err != nil {
		return nil, fmt.Errorf("read publicKeyJwk: %w", err)
	}
	if operations.KeyOps != nil && !slices.Contains(operations.KeyOps, "verify") {
		return nil, errors.New("the key's key_ops do not hold verify")
	}
	var jwk jose.JSONWebKey
	if err := jwk.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("read publicKeyJwk: %w", err)
	}
	if err := checkJWK(&jwk); err != nil {
		return nil, err
	}
	jwk.Certificates, jwk.CertificateThumbprintSHA1, jwk.CertificateThumbprintSHA256 = nil, nil, nil
	return &jwk, nil
}

// privateMembers of a JSON Web Key (RFC 7518, 6.2.2, 6.3.2, 6.4; RFC 8037, 2; RFC 9964).
var privateMembers = []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"}

// givesAwayPrivateKey looks for private keys anywhere in a JSON value, in any of the
// forms that verification methods have had.
func givesAwayPrivateKey(value any) bool {
	switch value := value.(type) {
	case []any:
		return slices.ContainsFunc(value, givesAwayPrivateKey)
	case map[string]any:
		_, isJWK := value["kty"]
		for name := range maps.Keys(value) {
			lower := strings.ToLower(name)
			if strings.HasPrefix(lower, "privatekey") || strings.HasPrefix(lower, "secretkey") ||
				isJWK && slices.Contains(privateMembers, name) || givesAwayPrivateKey(value[name]) {
				return true
			}
		}
	}
	return false
}
