package contracts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// Agreement is a contract of an instance, for a reader.
type Agreement struct {
	// Digest of the whole contract.
	Digest string `json:"digest"`
	// Contract, or the part of it that the reader may see.
	Contract *Document `json:"contract"`
	// EndedAt is when it ended; absent if it is in force.
	EndedAt *time.Time `json:"ended_at,omitempty"`
}

// Read returns the contracts of the instances of a name, the earlier ones first: of the one that is there, and of those
// that had the name before and are gone. The reader must be live, or a contract may be missing. What happens meanwhile
// may be missing, but nothing is lost or doubled that happened before.
func Read(ctx context.Context, hub client.Reader, namespace, name string) ([]Agreement, error) {
	type held struct {
		subject   v1alpha1.EventSubject
		contracts []v1alpha1.Contract
	}
	known := map[types.UID]*held{}
	add := func(uid types.UID, subject v1alpha1.EventSubject, contracts []v1alpha1.Contract) {
		if known[uid] == nil {
			known[uid] = &held{subject: subject}
		}
		known[uid].contracts = v1alpha1.MergeContracts(contracts, known[uid].contracts)
	}
	// Contracts go from instances to journals. Read in this order, none is missed.
	var i v1alpha1.ServiceInstance
	err := hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &i)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read instance %s: %w", name, err)
	}
	if err == nil {
		add(v1alpha1.UIDOf(&i), i.Subject(), Held(&i))
	}
	var journals v1alpha1.JournalList
	if err := hub.List(ctx, &journals, client.InNamespace(namespace), client.MatchingFields{"spec.name": name}); err != nil {
		return nil, fmt.Errorf("read the journals of instance %s: %w", name, err)
	}
	for n := range journals.Items {
		j := &journals.Items[n]
		uid, _, _ := strings.Cut(j.Name, v1alpha1.JournalContracts)
		if j.Spec.Kind == v1alpha1.KindServiceInstance && len(j.Spec.Contracts) > 0 {
			add(types.UID(uid), j.Spec.EventSubject, j.Spec.Contracts)
		}
	}
	all := []Agreement{}
	for uid, h := range known {
		for _, c := range h.contracts {
			d := documentOf(h.subject, uid, c)
			a := Agreement{Digest: Digest(d), Contract: d}
			if c.To != nil {
				at := c.To.UTC()
				a.EndedAt = &at
			}
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b Agreement) int {
		return cmp.Or(a.Contract.From.Compare(b.Contract.From), strings.Compare(a.Contract.Instance.UID, b.Contract.Instance.UID), cmp.Compare(a.Contract.Number, b.Contract.Number))
	})
	return all, nil
}

// Claims are the claims of a statement about the contract. The subject is its digest.
func (a *Agreement) Claims() map[string]any {
	claims := map[string]any{"sub": a.Digest, "contract": a.Contract}
	if a.EndedAt != nil {
		claims["ended_at"] = a.EndedAt
	}
	return claims
}

// Parts returns agreements with the parts that a reader may see, without those of which it may see nothing.
func Parts(all []Agreement, part func(*Document) *Document) []Agreement {
	seen := []Agreement{}
	for _, a := range all {
		if a.Contract = part(a.Contract); a.Contract != nil {
			seen = append(seen, a)
		}
	}
	return seen
}
