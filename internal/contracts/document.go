package contracts

import (
	"cmp"
	"encoding/json"
	"math/big"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/journal"
	"github.com/sluice-dev/sluice/internal/usage"
)

// Document is a contract as it is signed, or the part of it that a reader may see. Its numbers are integers, and all
// amounts are texts, so it has one canonical form (RFC 8785).
type Document struct {
	Number    int64      `json:"number"`
	From      time.Time  `json:"from"`
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	// Former is the digest of the contract before.
	Former   string   `json:"former,omitempty"`
	Instance Instance `json:"instance"`
	Plan     *Plan    `json:"plan,omitempty"`
	// Clusters, or what they have together in Total, for readers that may not see where an instance is.
	Clusters []Cluster `json:"clusters,omitempty"`
	Total    []Amount  `json:"total,omitempty"`
	Policies []Policy  `json:"policies,omitempty"`
}

// Instance names a service instance, and who ordered it.
type Instance struct {
	UID          string `json:"uid,omitempty"`
	Resource     string `json:"resource,omitempty"`
	Platform     string `json:"platform,omitempty"`
	ID           string `json:"id,omitempty"`
	Organization string `json:"organization,omitempty"`
	Space        string `json:"space,omitempty"`
	// OrderedBy is the end user for whom the platform asked last.
	OrderedBy string `json:"ordered_by,omitempty"`
	// Credentials are the digests of those that proved the consumer's claims.
	Credentials []string `json:"credentials,omitempty"`
}

// Plan names the plan that was ordered.
type Plan struct {
	ServiceID          string `json:"service_id"`
	Service            string `json:"service,omitempty"`
	ID                 string `json:"id"`
	Digest             string `json:"digest,omitempty"`
	MaintenanceVersion string `json:"maintenance_version,omitempty"`
}

// Amount has the resources that are reserved, and their price.
type Amount struct {
	Reserved     map[string]string `json:"reserved,omitempty"`
	PricePerHour string            `json:"price_per_hour,omitempty"`
	Currency     string            `json:"currency,omitempty"`
}

// Cluster has the amounts of an instance on one cluster, and the digests of the credentials that proved the cluster's
// claims.
type Cluster struct {
	Cluster    string   `json:"cluster"`
	Provider   string   `json:"provider,omitempty"`
	Replicas   int32    `json:"replicas,omitempty"`
	Components []string `json:"components,omitempty"`
	Amount
	Credentials []string `json:"credentials,omitempty"`
}

// Policy is a placement policy that was in force.
type Policy struct {
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	Digest     string `json:"digest"`
}

// Of returns the document of a contract of an instance. The contract has all of its fields.
func Of(i *v1alpha1.ServiceInstance, c v1alpha1.Contract) *Document {
	return documentOf(i.Subject(), v1alpha1.UIDOf(i), c)
}

func documentOf(subject v1alpha1.EventSubject, uid types.UID, c v1alpha1.Contract) *Document {
	d := &Document{
		Number: c.Number, From: c.From.UTC(), Former: c.Former,
		Instance: Instance{
			UID: string(uid), Resource: subject.Name, Platform: subject.Platform, ID: subject.InstanceID,
			Organization: subject.OrganizationGUID, Space: subject.SpaceGUID,
		},
		Plan: &Plan{ServiceID: subject.ServiceID, ID: c.PlanID, MaintenanceVersion: c.MaintenanceVersion},
	}
	if t := c.Terms; t != nil {
		at := t.At.UTC()
		d.DecidedAt, d.Instance.OrderedBy, d.Plan.Service, d.Plan.Digest = &at, journal.User(t.By), t.Offering, t.PlanDigest
		d.Instance.Credentials = t.ConsumerCredentials
		for _, p := range t.Policies {
			d.Policies = append(d.Policies, Policy(p))
		}
	}
	for _, p := range c.Placements {
		on := Cluster{Cluster: p.Cluster, Replicas: p.Replicas, Components: p.Components, Amount: Amount{Reserved: texts(p.Reserved), Currency: p.Currency}}
		if p.PricePerHour != nil {
			on.PricePerHour = text(p.PricePerHour)
		}
		if t := c.Terms.Of(p.Cluster); t != nil {
			on.Provider, on.Credentials = t.Provider, t.Credentials
		}
		d.Clusters = append(d.Clusters, on)
	}
	return d
}

// Whole returns the document.
func (d *Document) Whole() *Document { return d }

// ForConsumer returns the part for the instance's own platform: nothing of where it is, by which policies and by whose
// proofs, and the sums of what it has.
func (d *Document) ForConsumer() *Document {
	out := &Document{Number: d.Number, From: d.From, DecidedAt: d.DecidedAt, Former: d.Former, Instance: d.Instance, Total: totals(d.Clusters)}
	out.Instance.UID, out.Instance.Resource, out.Instance.Credentials = "", "", nil
	if d.Plan != nil {
		plan := *d.Plan
		plan.Digest = ""
		out.Plan = &plan
	}
	return out
}

// ForProvider returns the part for a provider: what is on its own clusters, and nothing of whose that is; nil if nothing
// is.
func (d *Document) ForProvider(provider string) *Document {
	out := &Document{Number: d.Number, From: d.From, DecidedAt: d.DecidedAt, Former: d.Former, Instance: Instance{Resource: d.Instance.Resource}}
	for _, c := range d.Clusters {
		if c.Provider == provider && provider != "" {
			out.Clusters = append(out.Clusters, c)
		}
	}
	if out.Clusters == nil {
		return nil
	}
	return out
}

// Digest returns the SHA-256 digest of a whole document in its canonical form, "sha256-<base64>". Readers of a part learn
// nothing of the rest from it, which has UIDs that they cannot guess.
func Digest(d *Document) string {
	return v1alpha1.SRI(canonical(d))
}

// canonical returns a document with its members in order, without white space (RFC 8785).
func canonical(d *Document) []byte {
	raw, _ := json.Marshal(d) // texts and integers
	canonical := jsontext.Value(raw)
	_ = canonical.Canonicalize() // it is JSON
	return canonical
}

// digits of quantities after the point: more than nine are in none.
const digits = 9

// totals adds up what is on several clusters, by currency.
func totals(clusters []Cluster) (all []Amount) {
	type sum struct {
		reserved map[string]*big.Rat
		price    *big.Rat
	}
	sums := map[string]*sum{}
	for _, c := range clusters {
		s := sums[c.Currency]
		if s == nil {
			s = &sum{map[string]*big.Rat{}, new(big.Rat)}
			sums[c.Currency] = s
		}
		for name, amount := range c.Reserved {
			s.reserved[name] = add(s.reserved[name], amount)
		}
		s.price = add(s.price, cmp.Or(c.PricePerHour, "0"))
	}
	for currency, s := range sums {
		amount := Amount{Reserved: map[string]string{}, Currency: currency}
		for name, of := range s.reserved {
			amount.Reserved[name] = usage.Text(of, digits)
		}
		if currency != "" {
			amount.PricePerHour = usage.Text(s.price, digits)
		}
		all = append(all, amount)
	}
	slices.SortFunc(all, func(a, b Amount) int { return cmp.Compare(a.Currency, b.Currency) })
	return all
}

func add(to *big.Rat, amount string) *big.Rat {
	if to == nil {
		to = new(big.Rat)
	}
	n, ok := new(big.Rat).SetString(amount)
	if !ok {
		return to // never: text made it
	}
	return to.Add(to, n)
}

func texts(of corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range of {
		out[string(name)] = text(&q)
	}
	return out
}

// text returns a quantity as a decimal number without a suffix: its value, however it was written.
func text(q *resource.Quantity) string {
	n, ok := new(big.Rat).SetString(q.AsDec().String())
	if !ok {
		return q.String()
	}
	return usage.Text(n, digits)
}
