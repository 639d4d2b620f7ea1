package legacy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sluice-dev/sluice/internal/strictjson"
	"github.com/sluice-dev/sluice/selfdescription"
	"github.com/sluice-dev/sluice/selfdescription/legacy/rdfc"
)

const (
	proofType = "JsonWebSignature2020"
	// formerProofType is Gaia-X's name for the same until September 2022.
	formerProofType = "JsonWebKey2020"
)

// Form says which bytes the signature of a document covers. It is found by trying each form.
type Form string

// Forms of signatures of type JsonWebSignature2020.
const (
	// FormW3C signs the hash of the canonical proof options, followed by that of the
	// canonical document: everything.
	FormW3C Form = "W3C"
	// FormGaiaX signs the hash of the canonical document in hexadecimal, as Gaia-X did since
	// 2022. The proof is not signed.
	FormGaiaX Form = "Gaia-X 2022"
)

// proof of a credential. Its options are all members but the signature.
type proof struct {
	options            map[string]any
	verificationMethod string
	created            time.Time
	jws                string
	// algorithm in the header of the signature.
	algorithm string
}

func readProof(value any) (proof, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return proof{}, errors.New("/proof: want one object")
	}
	members := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		text, ok := object[name].(string)
		if !ok || !slices.Contains([]string{"type", "created", "verificationMethod", "proofPurpose", "jws"}, name) {
			return proof{}, fmt.Errorf("/proof/%.80s: not read in a proof of type %s", name, proofType)
		}
		members[name] = text
	}
	p := proof{options: maps.Clone(object), verificationMethod: members["verificationMethod"], jws: members["jws"]}
	delete(p.options, "jws")
	if members["type"] != proofType && members["type"] != formerProofType {
		return proof{}, fmt.Errorf("/proof/type: want %s, got %.80q", proofType, members["type"])
	}
	if members["proofPurpose"] != "assertionMethod" {
		return proof{}, fmt.Errorf("/proof/proofPurpose: want assertionMethod, got %.80q", members["proofPurpose"])
	}
	var err error
	if p.created, err = selfdescription.ParseDateTime(members["created"]); err != nil {
		return proof{}, fmt.Errorf("/proof/created: want a date and time, got %.80q", members["created"])
	}
	if p.algorithm, err = algorithmOf(p.jws); err != nil {
		return proof{}, fmt.Errorf("/proof/jws: %w", err)
	}
	return p, nil
}

// algorithmOf reads the header of a detached signature over an unencoded payload (RFC
// 7797). Headers with anything else, such as a key, are refused.
func algorithmOf(jws string) (string, error) {
	parts := strings.Split(jws, ".")
	if len(parts) != 3 || parts[1] != "" {
		return "", errors.New("want a header and a signature with nothing between them")
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil {
		return "", fmt.Errorf("header: %w", err)
	}
	var header struct {
		Algorithm string   `json:"alg"`
		Base64    *bool    `json:"b64"`
		Critical  []string `json:"crit"`
	}
	limits := strictjson.Limits{Bytes: 1 << 10, Depth: 2, Object: true, KnownMembers: true}
	if err := strictjson.Decode(strings.NewReader(string(raw)), limits, &header); err != nil {
		return "", fmt.Errorf("header: %w", err)
	}
	if header.Base64 == nil || *header.Base64 || !slices.Equal(header.Critical, []string{"b64"}) {
		return "", errors.New(`header: want "b64":false and "crit":["b64"]`)
	}
	return header.Algorithm, nil
}

// payload is the data that a form signs.
type payload struct {
	form  Form
	bytes []byte
}

// payloads returns the payload of each form that the document with this sum can have.
func (d *document) payloads(sum selfdescription.Digest) ([]payload, error) {
	var all []payload
	// Without the context of the signature suite the proof has no meaning in RDF, so FormW3C is
	// impossible.
	if options, err := d.proofOptions(); err == nil {
		optionsSum := sha256.Sum256([]byte(options))
		all = append(all, payload{FormW3C, append(optionsSum[:], sum[:]...)})
	} else if errors.Is(err, rdfc.ErrBudget) {
		return nil, err
	}
	all = append(all, payload{FormGaiaX, []byte(hex.EncodeToString(sum[:]))})
	return all, nil
}

// proofOptions returns the canonical options of the proof, in the contexts of the document.
func (d *document) proofOptions() (string, error) {
	options := maps.Clone(d.proof.options)
	options["@context"] = d.contexts
	node, err := expand(options)
	if err != nil {
		return "", err
	}
	quads, err := dataset(node)
	if err != nil {
		return "", err
	}
	return rdfc.Canonicalize(quads, 0)
}

// verify reports whether the key made the signature over the payload.
func (p proof) verify(payload []byte, key *jose.JSONWebKey) bool {
	signature, err := jose.ParseDetached(p.jws, payload, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(p.algorithm)})
	return err == nil && signature.DetachedVerify(payload, key.Key) == nil
}
