package draft

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/selfdescription"
)

// Attestation is a statement of another party about the provider's credentials.
type Attestation struct {
	// Type of the credential: Certification, LabelCredential, or the type of the attested
	// credential (a notary, for example, repeats a registration number).
	Type string
	// ID of the credential and of the subject of a label, a URL of the issuer's.
	ID string
	// About are the attested credentials; a certification's subject is that of the first.
	About []*selfdescription.Credential
	// Standard that a certification is to, for instance ISO/IEC 27001.
	Standard string
	// Level of a label: SC, L1, L2 or L3; Rules, Engine and Criteria say how it was reached.
	Level, Rules, Engine string
	Criteria             []string
	// ValidFrom and ValidUntil bound the validity.
	ValidFrom, ValidUntil time.Time
}

// Document returns the document of the attestation's credential.
func (a Attestation) Document() (selfdescription.Document, error) {
	if len(a.About) == 0 {
		return selfdescription.Document{}, errors.New("an attestation needs a credential that it is about")
	}
	subject, err := a.subject()
	if err != nil {
		return selfdescription.Document{}, err
	}
	return selfdescription.Document{ID: a.ID, Subject: subject, ValidFrom: a.ValidFrom, ValidUntil: a.ValidUntil}, nil
}

func (a Attestation) subject() (map[string]any, error) {
	first := a.About[0]
	switch a.Type {
	case selfdescription.TypeCertification:
		if a.Standard == "" {
			return nil, errors.New("a certification needs a standard, for instance ISO/IEC 27001")
		}
		return map[string]any{
			"id": first.Subject, "type": a.Type, "standard": a.Standard,
			"certifiedCredentials": a.about(func(c *selfdescription.Credential) map[string]any {
				return identified(c, map[string]any{"digestSRI": c.Digest.SRI()})
			}),
		}, nil
	case selfdescription.TypeLabelCredential:
		if a.Level == "" || a.Rules == "" || a.Engine == "" || len(a.Criteria) == 0 {
			return nil, errors.New("a label needs a level, the rules and engine it was reached with, and the criteria")
		}
		return map[string]any{
			"id": a.ID + "#subject", "type": a.Type, "labelLevel": a.Level,
			"rulesVersion": a.Rules, "engineVersion": a.Engine, "validatedCriteria": a.Criteria,
			"compliantCredentials": a.about(func(c *selfdescription.Credential) map[string]any {
				return identified(c, map[string]any{"type": "CompliantCredential", "credentialType": c.Type, "digestSRI": c.Digest.SRI()})
			}),
		}, nil
	case first.Type:
		if len(a.About) > 1 {
			return nil, fmt.Errorf("a %s repeats one credential, not %d", a.Type, len(a.About))
		}
		return maps.Clone(first.Claims), nil
	}
	return nil, fmt.Errorf("a %s cannot be made of a %s: want %s", a.Type, first.Type,
		strings.Join([]string{selfdescription.TypeCertification, selfdescription.TypeLabelCredential, first.Type}, ", "))
}

func (a Attestation) about(describe func(*selfdescription.Credential) map[string]any) []map[string]any {
	described := make([]map[string]any, 0, len(a.About))
	for _, c := range a.About {
		described = append(described, describe(c))
	}
	return described
}

// identified adds the id of a credential to a node, if it has one. The id of its subject is not
// used: the attestation's own subject may have that id.
func identified(c *selfdescription.Credential, node map[string]any) map[string]any {
	if c.ID != "" {
		node["id"] = c.ID
	}
	return node
}
