package catalog

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/lists"
	"github.com/sluice-dev/sluice/selfdescription/shape"
)

// Facts are the proven facts about the clusters on which a plan's instances can be placed.
type Facts struct {
	// SelfDescriptions that prove the facts, offerings first; at most MaxSelfDescriptions.
	SelfDescriptions []SelfDescription
	// EveryCluster reports that each of these clusters was admitted by its credentials. If false,
	// an instance may be placed on a cluster about which nothing is proven.
	EveryCluster bool
	// Countries and LabelLevels are the values that occur among the clusters.
	Countries, LabelLevels []string
	// Unlocated reports that the country of an admitted cluster is not proven.
	Unlocated bool
}

// Unions returns "EU" and "EEA" if each of the clusters is proven to be in it, as rules of policies have them.
func (f *Facts) Unions() (names []string) {
	outside := func(is func(string) bool) bool {
		return slices.ContainsFunc(f.Countries, func(country string) bool { return !is(country) })
	}
	if !f.EveryCluster || f.Unlocated || len(f.Countries) == 0 {
		return nil
	}
	if !outside(shape.InEU) {
		names = append(names, "EU")
	}
	if !outside(shape.InEEA) {
		names = append(names, "EEA")
	}
	return names
}

// SelfDescription links a credential, as an entry of a plan's metadata.selfDescriptions.
type SelfDescription struct {
	// Type of the credential's subject, without prefix.
	Type string `json:"type"`
	// Href at this broker; a request with Accept: MediaType gets the credential.
	Href      string `json:"href"`
	MediaType string `json:"mediaType"`
	// DigestSRI of the credential ("sha256-<base64>", Subresource Integrity).
	DigestSRI string `json:"digestSRI"`
	Issuer    string `json:"issuer"`
	// ValidUntil (RFC 3339) is empty if the credential does not expire.
	ValidUntil string `json:"validUntil,omitempty"`
	// Verification is the state of the credential in Sluice.
	Verification v1alpha1.CredentialState `json:"verification"`
	// Countries and LabelLevel of an offering are those of its cluster.
	Countries     []string `json:"countries,omitempty"`
	LabelLevel    string   `json:"labelLevel,omitempty"`
	Certification string   `json:"certification,omitempty"`
}

// MaxSelfDescriptions limits the links in a plan's metadata. The broker's list of
// credentials has all of them.
const MaxSelfDescriptions = 32

// evidence is the source of facts: the member clusters and the credentials.
type evidence struct {
	clusters  []v1alpha1.MemberCluster
	byDigest  map[string]*v1alpha1.SelfDescription // by digestSRI
	bySubject map[string][]*v1alpha1.SelfDescription
}

func newEvidence(clusters []v1alpha1.MemberCluster, credentials []v1alpha1.SelfDescription) *evidence {
	e := &evidence{
		clusters:  clusters,
		byDigest:  make(map[string]*v1alpha1.SelfDescription, len(credentials)),
		bySubject: make(map[string][]*v1alpha1.SelfDescription, len(credentials)),
	}
	for i := range credentials {
		c := &credentials[i]
		e.byDigest[digestSRI(c)] = c
		e.bySubject[c.Status.Subject] = append(e.bySubject[c.Status.Subject], c)
	}
	return e
}

// facts returns the facts about a plan; nil if nothing is proven about any cluster that its
// selector matches.
func (e *evidence) facts(p *Plan) *Facts {
	if p.Resources == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(p.Resources.Selector)
	if err != nil {
		return nil // the plan is not served then
	}
	if p.Resources.Selector == nil {
		selector = labels.Everything()
	}
	opaque := p.Resources.Peering.IsOpaque()
	f := &Facts{EveryCluster: true}
	linked := map[string]SelfDescription{}
	for i := range e.clusters {
		c := &e.clusters[i]
		switch {
		case opaque != (c.Spec.Pool != nil) || !opaque && !c.Sells() || c.DeletionTimestamp != nil: // no instance of the plan can be there
		case !selector.Matches(labels.Set(c.SelectorLabels())):
		case !admitted(c):
			f.EveryCluster = false
		default:
			f.add(c, e.of(c), linked)
		}
	}
	if len(linked) == 0 {
		return nil
	}
	for _, d := range linked {
		f.SelfDescriptions = append(f.SelfDescriptions, d)
	}
	slices.SortFunc(f.SelfDescriptions, func(a, b SelfDescription) int {
		return cmp.Or(cmp.Compare(rank(a.Type), rank(b.Type)), strings.Compare(a.Type, b.Type), strings.Compare(a.DigestSRI, b.DigestSRI))
	})
	f.SelfDescriptions = f.SelfDescriptions[:min(len(f.SelfDescriptions), MaxSelfDescriptions)]
	f.Countries, f.LabelLevels = lists.Sorted(f.Countries), lists.Sorted(f.LabelLevels)
	return f
}

// add includes one admitted cluster.
func (f *Facts) add(c *v1alpha1.MemberCluster, credentials []*v1alpha1.SelfDescription, linked map[string]SelfDescription) {
	countries, levels := claimed(c, v1alpha1.ClaimDatacenterCountry), claimed(c, v1alpha1.ClaimLabel)
	f.Countries, f.LabelLevels = append(f.Countries, countries...), append(f.LabelLevels, levels...)
	f.Unlocated = f.Unlocated || len(countries) == 0
	for _, credential := range credentials {
		d := link(credential)
		if rank(d.Type) == 0 {
			d.Countries, d.LabelLevel = countries, highest(levels)
		}
		linked[d.DigestSRI] = d
	}
}

// of returns the credentials that a cluster's admission rests on: its offering's
// credential, and those that its claims name.
func (e *evidence) of(c *v1alpha1.MemberCluster) (list []*v1alpha1.SelfDescription) {
	for _, credential := range e.bySubject[c.Spec.Trust.Offering] {
		if rank(credential.Status.Type) == 0 && credential.Spec.Provider == c.Spec.Provider && credential.Status.State == v1alpha1.CredentialVerified {
			list = append(list, credential)
		}
	}
	for _, claim := range c.Status.Claims {
		if credential := e.byDigest[claim.Credential]; credential != nil {
			list = append(list, credential)
		}
	}
	return list
}

func admitted(c *v1alpha1.MemberCluster) bool {
	return c.Spec.Trust != nil && meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionAdmitted)
}

func claimed(c *v1alpha1.MemberCluster, name string) (values []string) {
	for _, claim := range c.Status.Claims {
		if claim.Name == name {
			values = append(values, claim.Value)
		}
	}
	return lists.Sorted(values)
}

// labelLevels from the lowest to the highest.
var labelLevels = []string{"SC", "L1", "L2", "L3"}

func highest(levels []string) string {
	if len(levels) == 0 {
		return ""
	}
	return slices.MaxFunc(levels, func(a, b string) int { return slices.Index(labelLevels, a) - slices.Index(labelLevels, b) })
}

// rank sorts offerings before other credentials.
func rank(subjectType string) int {
	if shape.Is(subjectType, "ServiceOffering") {
		return 0
	}
	return 1
}

func link(c *v1alpha1.SelfDescription) SelfDescription {
	d := SelfDescription{
		Type: c.Status.Type, Href: "/selfdescriptions/" + digestHex(c), MediaType: "application/vc+jwt", DigestSRI: digestSRI(c),
		Issuer: c.Status.Issuer, Verification: c.Status.State,
		Countries: c.Status.Countries, LabelLevel: c.Status.LabelLevel, Certification: c.Status.Certification,
	}
	if c.Spec.Legacy {
		d.MediaType = "application/ld+json"
	}
	if until := c.Status.ValidUntil; until != nil {
		d.ValidUntil = until.UTC().Format(time.RFC3339)
	}
	return d
}

// digestHex returns the digest of a credential from its resource's name.
func digestHex(c *v1alpha1.SelfDescription) string { return strings.TrimPrefix(c.Name, "sd-") }

func digestSRI(c *v1alpha1.SelfDescription) string {
	raw, _ := hex.DecodeString(digestHex(c)) // a name that is not a digest matches no claim
	return "sha256-" + base64.StdEncoding.EncodeToString(raw)
}
